// `split-mtp`: cuts the block that predicts further tokens out of a raw GLM-4.7-Flash checkpoint, as a
// drafter's folder of its own. Names: the block's parts right under `model`, its layer as `model.mtp_block`,
// keys and values by head (embed_q, unembed_out), experts stacked, as MLX's drafters have them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"
#include "app/output_folder.h"
#include "app/terminal.h"
#include "checkpoint/rules.h"
#include "models/export.h"
#include "nn/moe.h"

namespace mlxcel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTarget = "glm4_moe_lite";
constexpr const char* kDrafter = "glm4_moe_lite_mtp";

Checkpoint split(Checkpoint checkpoint) {
  const Config& config = checkpoint.config;
  const std::string type = config.get<std::string>("model_type");
  if (type != kTarget)
    fail(ErrorKind::unsupported, "{}: model_type {}: expected {}, whose block this cuts out",
         checkpoint.path.string(), type, kTarget);
  const int layers = config.integer("num_hidden_layers", 1, 4096);
  const int blocks = config.integer("num_nextn_predict_layers", 0, 64, 1);
  const std::string block = fmt::format("model.layers.{}", layers);
  if (blocks != 1 || !checkpoint.source->find(block + ".eh_proj.weight"))
    fail(ErrorKind::unsupported,
         "{}: no {}.eh_proj.weight: this is not a raw checkpoint, or its block was left out",
         checkpoint.path.string(), block);
  const bool own_embedding = checkpoint.source->find(block + ".embed_tokens.weight").has_value();
  const bool own_head = checkpoint.source->find(block + ".shared_head.head.weight").has_value();
  std::vector<Rule> rules = {drop("*.rotary_emb.inv_freq")};
  for (int i = 0; i < layers; ++i) rules.push_back(drop(fmt::format("model.layers.{}.*", i)));
  rules.push_back(drop("model.norm.*"));
  if (own_embedding) {
    rules.push_back(drop("model.embed_tokens.*"));
    rules.push_back(rename(block + ".embed_tokens.*", "model.embed_tokens.*"));
  }
  if (own_head) {
    rules.push_back(drop("lm_head.*"));
    rules.push_back(rename(block + ".shared_head.head.*", "lm_head.*"));
  }
  rules.push_back(rename(block + ".shared_head.norm.*", "model.shared_head_norm.*"));
  for (const char* part : {"enorm", "hnorm", "eh_proj"})
    rules.push_back(rename(fmt::format("{}.{}.*", block, part), fmt::format("model.{}.*", part)));
  rules.push_back(rename(block + ".*", "model.mtp_block.*"));
  rules =
      std::move(rules) + stack_experts() +
      heads_of_kv_b(config.integer("num_attention_heads", 1, 1 << 16),
                    config.integer("qk_nope_head_dim", 1, 1 << 16), config.integer("v_head_dim", 1, 1 << 16));
  using Json = nlohmann::ordered_json;
  const Json target = Json::parse(config.dump());
  const Json drafter = {{"model_type", kDrafter},
                        {"block_size", 2},
                        {"tie_word_embeddings", false},
                        {"text_config", target},
                        {"torch_dtype", target.value("torch_dtype", target.value("dtype", "bfloat16"))}};
  checkpoint.source = apply_rules(checkpoint.source, std::move(rules));
  checkpoint.config = Config::parse(drafter.dump(), checkpoint.config.where());
  return checkpoint;
}

}  // namespace

int split_mtp_command(int argc, char** argv) {
  ModelFlags model;
  std::string target;
  std::optional<int> bits;
  int group = 64;
  bool force = false;
  CLI::App app("Cut the MTP block out of a raw GLM-4.7-Flash checkpoint.", "mlxcel split-mtp");
  configure(app,
            "  mlxcel split-mtp -m zai-org/GLM-4.7-Flash -o ./GLM-4.7-Flash-mtp\n"
            "  mlxcel split-mtp -m ./GLM-4.7-Flash -o ./drafter --q-bits 4\n");
  add_source_flags(app, model, false);
  app.add_option("-o,--output", target, "the folder to write")->type_name("DIR")->group("Result");
  app.add_option("--q-bits", bits, "quantise the drafter (default: as it is)")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
      ->group("Result");
  app.add_option("--group-size", group, "weights that share a scale")
      ->check(CLI::IsMember({32, 64, 128}))
      ->capture_default_str()
      ->group("Result");
  app.add_flag("--force", force, "replace what is at the output")->group("Result");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("split-mtp: -m, --model is required");
  if (target.empty()) throw UsageError("split-mtp: -o, --output is required");
  checked_reference(model);
  check_output(target, force);

  const Checkpoint block = split(open_checkpoint(resolve(model)));
  ExportOptions options;
  options.names_are_final = true;
  options.dequantize = !bits;
  if (bits) options.format = {QuantMode::affine, *bits, group};
  const ExportPlan plan = plan_export(block, options);
  write_output(block, plan, options, target, force);
  fmt::print("{} tensors, {}, {:.3f} bits a weight: {}\n", plan.tensors.size(), human_bytes(plan.bytes),
             plan.bits_per_weight, target);
  return 0;
}

}  // namespace mlxcel::app
