// `inspect`: what a model needs, from headers and configuration alone (features.md section 11).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/estimate.h"
#include "app/options.h"
#include "app/terminal.h"
#include "models/model.h"

namespace mlxcel::app {
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
  if (json) model.fetch = false;  // quiet and offline: a miss is an error

  const auto path = resolve(model);
  const Checkpoint checkpoint = open_checkpoint(path);
  const ModelPlan plan = plan_model(checkpoint.config, checkpoint.source);
  const ModelInfo& info = plan.info;
  const Estimate e =
      estimate_memory(plan, checkpoint.config, kv_dtype(plan, model.kv_cache_mode),
                      static_cast<std::uintmax_t>(tokens), static_cast<std::uintmax_t>(batch), 2048);
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
        {"backend_inflight_bytes", e.inflight},
        {"headroom_bytes", e.headroom},
        {"budget_bytes", e.budget},
        {"total_bytes", e.total},
        {"fits", e.fits},
        {"kv_bytes_per_token_fp16",
         has_kv ? Json(plan.layout.kv_bytes_per_token(mx::float16)) : Json(nullptr)},
        {"kv_bytes_per_token_int8", nullptr},
        {"kv_bytes_per_token_turbo4", nullptr},
        {"paged_slot_overhead_bytes", e.kv_per_token * (kPageTokens - 1)},
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
  fmt::print("{}",
             estimate_text(plan, e, static_cast<std::uintmax_t>(tokens), static_cast<std::uintmax_t>(batch)));

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
