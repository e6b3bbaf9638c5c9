// `quantize`: a model written anew in another format, tensor by tensor.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "app/commands.h"
#include "app/flags/shared.h"
#include "app/options.h"
#include "app/output_folder.h"
#include "app/perplexity.h"
#include "app/say.h"
#include "app/terminal.h"
#include "base/memory.h"
#include "models/export.h"
#include "models/fitted.h"
#include "text/gguf_export.h"

namespace mlxcel::app {
namespace {

namespace fs = std::filesystem;

const char* plural(size_t n) { return n == 1 ? "" : "s"; }

/// "GLOB=BITS[:GROUP[:MODE]]".
ExportOverride parse_override(const std::string& text) {
  const auto bad = [&]() -> UsageError {
    return UsageError(
        fmt::format("--override {}: expected GLOB=BITS[:GROUP[:MODE]], for example *.v_proj=8:32", text));
  };
  const auto equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) throw bad();
  ExportOverride out;
  out.pattern = text.substr(0, equals);
  std::string rest = text.substr(equals + 1);
  std::vector<std::string> parts;
  for (size_t colon; (colon = rest.find(':')) != std::string::npos; rest = rest.substr(colon + 1))
    parts.push_back(rest.substr(0, colon));
  parts.push_back(rest);
  if (parts.size() > 3) throw bad();
  const auto number = [&](const std::string& word) {
    if (word.empty() || word.size() > 4 || word.find_first_not_of("0123456789") != std::string::npos)
      throw bad();
    return std::stoi(word);
  };
  std::optional<QuantMode> mode;
  if (parts.size() == 3 && !(mode = parse_quant_mode(parts[2]))) throw bad();
  out.format = default_format(mode.value_or(QuantMode::affine));
  out.format.bits = number(parts[0]);
  if (parts.size() > 1) out.format.group_size = number(parts[1]);
  if (!supported(out.format))
    throw UsageError(fmt::format("--override {}: {}", text, format_rule(out.format)));
  return out;
}

std::uint64_t parse_size(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < (1 << 20))
    throw UsageError(fmt::format("--shard-size {}: expected a size such as 5GB", text));
  return *bytes;
}

void print_plan(const ExportPlan& plan, bool every) {
  if (every)
    for (const ExportTensor& tensor : plan.tensors)
      fmt::print("{:<64} {:<18} {:<12} -> {}{}\n", tensor.name, to_string(tensor.shape), tensor.stored_as,
                 tensor.becomes(), tensor.why.empty() ? "" : "  (" + tensor.why + ")");
  fmt::print("{} tensor{}, {}, {:.3f} bits a weight\n", plan.tensors.size(), plural(plan.tensors.size()),
             human_bytes(plan.bytes), plan.bits_per_weight);
}

double perplexity_of(const std::string& model, const ServeFlags& flags, const std::string& text) {
  ModelFlags own = flags.model;
  own.model = model;
  own.quiet = true;
  EngineOptions options = engine_options(own);
  options.adapters = flags.engine.adapters;
  options.parallel = 1;
  options.warmup = false;
  PerplexityOptions measure;
  const auto engine = load_engine(own, options);
  measure.window = std::min(512, engine->context());
  measure.chunks = 32;
  const Perplexity p = measure_perplexity(*engine, text, measure, nullptr);
  fmt::print("perplexity of {}: {:.4f} +/- {:.5f} ({} tokens)\n", model, p.ppl, p.error, p.tokens);
  return p.ppl;
}

}  // namespace

int quantize_command(int argc, char** argv) {
  FlagState state;
  ModelFlags& model = state.serve.model;
  ExportOptions options;
  std::string mode = "affine", dtype, shard_size = "5GB", evaluate;
  std::optional<int> bits, group;
  std::vector<std::string> overrides;
  std::string target;
  bool dry_run = false, force = false;
  CLI::App app("Write a model as an MLX folder in another format.", "mlxcel quantize");
  configure(app,
            "  mlxcel quantize -m owner/name -o ./model-4bit\n"
            "  mlxcel quantize -m model.gguf -o ./model-mlx --bits 6 --group-size 32\n"
            "  mlxcel quantize -m ./model -o ./model-mixed --recipe mixed_3_6 --evaluate text.txt\n"
            "  mlxcel quantize -m ./model -o ./model-8 --bits 8 --override \"*.embed_tokens=4\" --dry-run\n");
  add_source_flags(app, model, false);
  app.add_option("-o,--output", target, "the folder to write")->type_name("DIR")->group("Result");
  app.add_option("--bits", bits, "bits a weight (default: 4, mxfp8 8)")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
      ->group("Format");
  app.add_option("--group-size", group,
                 "weights that share a scale (default: 64; the mx formats have their own)")
      ->check(CLI::IsMember({16, 32, 64, 128}))
      ->group("Format");
  app.add_option("--mode", mode, "how weights are coded")
      ->check(CLI::IsMember({"affine", "mxfp4", "nvfp4", "mxfp8"}))
      ->capture_default_str()
      ->group("Format");
  app.add_option("--recipe", options.recipe, "more bits where they matter")
      ->check(CLI::IsMember({"mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"}))
      ->group("Format");
  app.add_option("--override", overrides, "another format for some modules; repeatable, the last match wins")
      ->type_name("GLOB=BITS[:GROUP[:MODE]]")
      ->take_all()
      ->group("Format");
  app.add_option("--skip", options.skip, "leave these modules as they are; repeatable")
      ->type_name("GLOB")
      ->take_all()
      ->group("Format");
  app.add_option("--dtype", dtype, "type of scales and of what is not quantised (default: the model's)")
      ->check(CLI::IsMember({"f16", "bf16", "f32", "float16", "bfloat16", "float32"}))
      ->group("Format");
  app.add_flag("--dequantize", options.dequantize, "write a dense folder instead")->group("Format");
  app.add_option("--surgery", model.surgery, "edit weights first, by a YAML file")
      ->type_name("FILE")
      ->group("Format");
  SharedFlags shared(app, state);
  shared.add("Format", {{"--lora", "bake an adapter in first: its folder or file; repeatable"},
                        {"--lora-scaled", "the same, scaled beside its own alpha / r; repeatable"}});
  app.add_option("--shard-size", shard_size, "largest file")
      ->type_name("SIZE")
      ->capture_default_str()
      ->group("Result");
  app.add_flag("--dry-run", dry_run, "print the plan and stop")->group("Result");
  app.add_flag("--force", force, "replace what is at the output")->group("Result");
  app.add_option("--evaluate", evaluate, "measure the perplexity of this text before and after")
      ->type_name("FILE")
      ->group("Result");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("quantize: -m, --model is required");
  if (target.empty() && !dry_run) throw UsageError("quantize: -o, --output is required");
  options.format = default_format(*parse_quant_mode(mode));
  if (bits) options.format.bits = *bits;
  if (group) options.format.group_size = *group;
  if (!supported(options.format))
    throw UsageError(fmt::format("--mode {}: {}", mode, format_rule(options.format)));
  if (!options.recipe.empty() && (mode != "affine" || bits))
    throw UsageError("--recipe: sets the bits itself, in affine mode; leave out --bits and --mode");
  if (options.dequantize &&
      (bits || group || mode != "affine" || !options.recipe.empty() || !overrides.empty()))
    throw UsageError(
        "--dequantize: writes dense weights; leave out --bits, --group-size, --mode, --recipe, --override");
  for (const std::string& text : overrides) options.overrides.push_back(parse_override(text));
  if (!dtype.empty())
    options.dtype = dtype.starts_with("bf") ? mx::bfloat16
                    : dtype.ends_with("32") ? mx::float32
                                            : mx::float16;
  options.shard_bytes = parse_size(shard_size);
  const std::string text = evaluate.empty() ? "" : text_file(evaluate, "--evaluate", size_t{64} << 20);
  const CheckpointEdit surgery = surgery_edit(model);
  checked_reference(model);
  if (!dry_run) check_output(target, force);

  const fs::path source = resolve(model);
  Checkpoint checkpoint = open_checkpoint(source);
  if (surgery) surgery(checkpoint);
  for (const std::string& warning : checkpoint.warnings) say("warning: {}\n", warning);
  for (const AdapterSource& one : state.serve.engine.adapters)
    options.adapters.push_back({settled(checkpoint.config, AdapterFiles::read(one.path)), one.scale});
  if (checkpoint.gguf) {
    try {
      options.files = tokenizer_files(*checkpoint.gguf);
    } catch (const Error& fault) {
      say("warning: no tokenizer is written: {}; copy tokenizer.json and tokenizer_config.json from the "
          "original repository\n",
          fault.what());
    }
  }
  const ExportPlan plan = plan_export(checkpoint, options);
  for (const std::string& warning : plan.warnings) say("warning: {}\n", warning);
  if (dry_run) {
    print_plan(plan, true);
    return 0;
  }
  const double before = text.empty() ? 0 : perplexity_of(source.string(), state.serve, text);
  write_output(checkpoint, plan, options, target, force);
  for (const ExportTensor& tensor : plan.tensors)
    if (!tensor.why.empty()) fmt::print("{}: {} ({})\n", tensor.name, tensor.becomes(), tensor.why);
  print_plan(plan, false);
  if (!text.empty()) {
    ServeFlags written = state.serve;
    written.model.surgery.clear();
    written.engine.adapters.clear();
    ::unsetenv("MLXCEL_SURGERY");  // it is in the weights now
    const double after = perplexity_of(target, written, text);
    fmt::print("change: {:+.2f} %\n", 100 * (after / before - 1));
  }
  return 0;
}

}  // namespace mlxcel::app
