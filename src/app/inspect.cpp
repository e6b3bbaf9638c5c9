// `inspect`: what a model needs, from headers and configuration alone (features.md section 11).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"
#include "app/terminal.h"
#include "base/memory.h"
#include "models/model.h"

namespace mlxcel::app {
namespace {

double environment_number(const char* name, double fallback) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !std::isfinite(value) || value < 0) {
    fmt::print(stderr, "warning: {}={}: expected a positive number; using {}\n", name, text, fallback);
    return fallback;
  }
  return value;
}

/// Bytes of one token's keys and values over all full layers, and of the windowed layers by window.
std::uintmax_t kv_bytes(const StateLayout& layout, mx::Dtype dtype, std::uintmax_t tokens) {
  // Tokens count in steps of 256, windows are capped at what they can hold.
  const auto rounded = [](std::uintmax_t n) { return (n + 255) / 256 * 256; };
  std::uintmax_t total = 0;
  for (const KvSpec& spec : layout.kv()) {
    const std::uintmax_t kept =
        spec.window > 0 ? std::min<std::uintmax_t>(tokens, static_cast<std::uintmax_t>(spec.window)) : tokens;
    total += rounded(kept) * static_cast<std::uintmax_t>(spec.kv_heads) *
             static_cast<std::uintmax_t>(spec.key_dim + spec.value_dim) * mx::size_of(dtype);
  }
  return total;
}

struct Estimate {
  std::uintmax_t weights = 0, kv = 0, activation = 0, headroom = 0, total = 0, budget = 0;
  bool fits = false;
};

Estimate estimate(const ModelPlan& plan, const Config& config, mx::Dtype kv_dtype, std::uintmax_t tokens,
                  std::uintmax_t batch) {
  Estimate e;
  e.weights = plan.info.weight_bytes;
  e.kv = batch * (kv_bytes(plan.layout, kv_dtype, tokens) + plan.layout.recurrent_bytes());
  const double factor = environment_number("MLXCEL_HEADROOM_FACTOR", 1.20);
  const double base = static_cast<double>(e.weights + e.kv);
  e.headroom = factor > 1.0 ? static_cast<std::uintmax_t>(base * (factor - 1.0)) : 0;
  const std::uintmax_t hidden = static_cast<std::uintmax_t>(plan.info.hidden);
  const std::uintmax_t inner = static_cast<std::uintmax_t>(
      config.has("intermediate_size") ? config.get<int>("intermediate_size") : 4 * plan.info.hidden);
  const std::uintmax_t chunk = std::min<std::uintmax_t>(tokens, 2048);
  e.activation = static_cast<std::uintmax_t>(environment_number("MLXCEL_ACTIVATION_MULT", 3.0) *
                                             static_cast<double>(batch * chunk * (hidden + inner) * 2)) +
                 batch * static_cast<std::uintmax_t>(plan.info.vocab_size) * 2;
  e.total = e.weights + e.kv + e.headroom + e.activation;
  e.budget = available_memory();
  e.fits = e.total <= e.budget;
  return e;
}

}  // namespace

int inspect_command(int argc, char** argv) {
  ModelFlags model;
  int tokens = 4096, batch = 1;
  bool json = false, tensors = false;
  CLI::App app("Show what a model is and needs, from its headers alone.", "mlxcel inspect");
  configure(app,
            "  mlxcel inspect -m SmolLM2-135M-Instruct --max-tokens 8192 --batch 4\n  mlxcel inspect -m "
            "./model --json\n");
  add_source_flags(app, model, false);
  app.add_option("-n,--max-tokens", tokens, "tokens per sequence in the estimate")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--batch", batch, "sequences in the estimate")->type_name("N")->capture_default_str();
  app.add_option("--kv-cache-mode", model.kv_cache_mode, "fp16 or f32")
      ->check(CLI::IsMember({"fp16", "float16", "f32"}))
      ->capture_default_str();
  app.add_flag("--tensors", tensors, "list every tensor with its shape and storage, and the rules");
  app.add_flag("--json", json, "the estimate as JSON");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("inspect: -m, --model is required");
  if (tokens < 1 || tokens > 1 << 26)
    throw UsageError(fmt::format("--max-tokens {}: expected 1 to {}", tokens, 1 << 26));
  if (batch < 1 || batch > 1 << 16)
    throw UsageError(fmt::format("--batch {}: expected 1 to {}", batch, 1 << 16));
  checked_reference(model);

  const auto path = resolve(model);
  const Checkpoint checkpoint = open_checkpoint(path);
  const ModelPlan plan = plan_model(checkpoint.config, checkpoint.source);
  const ModelInfo& info = plan.info;
  const mx::Dtype native = info.checkpoint_dtype == mx::float32 ? mx::float32 : info.checkpoint_dtype;
  const mx::Dtype kv_dtype = model.kv_cache_mode == "f32" ? mx::float32 : native;
  const Estimate e = estimate(plan, checkpoint.config, kv_dtype, static_cast<std::uintmax_t>(tokens),
                              static_cast<std::uintmax_t>(batch));
  const bool has_kv = !plan.layout.kv().empty();

  if (json) {
    using Json = nlohmann::ordered_json;
    const Json out = {
        {"mlxcel_version", MLXCEL_VERSION},
        {"model_path", std::filesystem::absolute(path).string()},
        {"model_type", info.model_type},
        {"family", info.family},
        {"max_tokens", tokens},
        {"batch", batch},
        {"kv_cache_mode", has_kv ? Json(model.kv_cache_mode) : Json(nullptr)},
        {"quant", info.weights_label},
        {"weights_bytes", e.weights},
        {"kv_bytes_total", e.kv},
        {"activation_bytes", e.activation},
        {"backend_inflight_bytes", 0},
        {"headroom_bytes", e.headroom},
        {"budget_bytes", e.budget},
        {"total_bytes", e.total},
        {"fits", e.fits},
        {"kv_bytes_per_token_fp16",
         has_kv ? Json(plan.layout.kv_bytes_per_token(mx::float16)) : Json(nullptr)},
        {"kv_bytes_per_token_int8", nullptr},
        {"kv_bytes_per_token_turbo4", nullptr},
        {"paged_slot_overhead_bytes", plan.layout.kv_bytes_per_token(kv_dtype) * (kPageTokens - 1)},
    };
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }

  fmt::print("model        {}\n", path.string());
  fmt::print("family       {} (model_type {})\n", info.family, info.model_type);
  fmt::print("size         {:.1f} M parameters, {} layers, width {}, vocabulary {}\n",
             static_cast<double>(info.parameters) / 1e6, info.layers, info.hidden, info.vocab_size);
  fmt::print("window       {}\n",
             info.max_positions > 0 ? fmt::format("{} tokens", info.max_positions) : "unbounded");
  fmt::print("weights      {}, {}\n", info.weights_label, human_bytes(e.weights));
  if (has_kv)
    fmt::print("KV cache     {} for {} x {} tokens ({} bytes a token)\n", human_bytes(e.kv), batch, tokens,
               plan.layout.kv_bytes_per_token(kv_dtype));
  if (!plan.layout.recurrent().empty())
    fmt::print("state        {} a sequence\n", human_bytes(plan.layout.recurrent_bytes()));
  fmt::print("activation   {}\nheadroom     {}\ntotal        {}\navailable    {}\n",
             human_bytes(e.activation), human_bytes(e.headroom), human_bytes(e.total), human_bytes(e.budget));
  if (!e.fits) fmt::print("does not fit: lower --max-tokens or --batch, or take a smaller quantisation\n");

  // Which storage forms there are, and the tensors that depart from the usual one.
  std::map<std::string, std::vector<std::string>> by_form;
  std::map<std::string, std::uintmax_t> bytes_of;
  for (const std::string& name : checkpoint.source->names()) {
    if (const auto found = checkpoint.source->find(name)) {
      by_form[found->stored_as].push_back(name);
      bytes_of[found->stored_as] += found->bytes;
    }
  }
  fmt::print("stored as   ");
  for (const auto& [form, names] : by_form)
    fmt::print(" {} x {} ({})", names.size(), form, human_bytes(bytes_of[form]));
  fmt::print("\n");
  for (const auto& [form, names] : by_form)
    if (names.size() <= 4 && by_form.size() > 1) fmt::print("  {:<10} {}\n", form, fmt::join(names, ", "));
  for (const std::string& warning : checkpoint.warnings) fmt::print("warning: {}\n", warning);
  for (const std::string& warning : info.warnings) fmt::print("warning: {}\n", warning);
  if (tensors) {
    fmt::print("\nrules\n");
    for (const std::string& rule : plan.rules) fmt::print("  {}\n", rule);
    fmt::print("tensors in the file\n");
    for (const std::string& name : checkpoint.source->names())
      if (const auto found = checkpoint.source->find(name))
        fmt::print("  {:<52} {:<18} {}\n", name, to_string(found->shape), found->stored_as);
  }
  return 0;
}

}  // namespace mlxcel::app
