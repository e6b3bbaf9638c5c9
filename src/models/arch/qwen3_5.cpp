// Qwen3.5 and 3.6, dense and sparse, alone or inside a vision wrapper: Qwen3-Next's layers with their
// projections apart. Images count positions on three axes; text has the same on each, so it rotates plainly.
// Reference: transformers Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM.
#include "models/gated_line.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

Ffn feed_forward(const Config& c, const Weights& mlp) {
  const int hidden = c.integer("hidden_size", 1, kMaxWidth);
  if (c.integer("num_experts", 0, 4096, 0) > 0) return SparseMoe(mlp, hidden, gated_experts(c, 8));
  return GatedMlp(mlp, hidden, c.integer("intermediate_size", 1, kMaxWidth),
                  activation_from(c, "hidden_act", "silu"));
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const auto delta =
      GatedDeltaOptions::from(c, c.integer("hidden_size", 1, kMaxWidth), epsilon(c, "rms_norm_eps", 1e-6f));
  const bool tied = c.get("tie_word_embeddings", whole.get("tie_word_embeddings", false));
  return gated_decoder(c, w, delta, tied, [&](int, const Weights& mlp) { return feed_forward(c, mlp); });
}

MtpBlock mtp(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  return gated_mtp(c, w, [&](const Weights& mlp) { return feed_forward(c, mlp); });
}

std::vector<Rule> layer_rules() {
  return {stack("*.mlp.experts.#.*", "*.mlp.switch_mlp.*"),
          split_axis(-2, "*.mlp.experts.gate_up_proj",
                     {"*.mlp.switch_mlp.gate_proj.weight", "*.mlp.switch_mlp.up_proj.weight"}),
          rename("*.mlp.experts.down_proj", "*.mlp.switch_mlp.down_proj.weight")};
}

std::vector<Rule> mtp_rules(const Config&, const Source& source) {
  return gated_mtp_rules(
      text_side_rules() + std::vector<Rule>{drop("model.*"), drop("lm_head.*")} + layer_rules(), source);
}

/// A folder with the block alone, as MLX's tools cut it out: names without their prefix, norms already whole.
std::vector<Rule> drafter_rules(const Config&, const Source&) {
  return std::vector<Rule>{rename("mtp.*", "*"), rename("*", "mtp.*")} + layer_rules();
}

std::vector<Rule> weights(const Config& whole, const Source& source) {
  const Config c = text_config(whole);
  // GGUF files number the layers of next-token prediction on.
  auto rules = text_side_rules() + drop_layers("model.layers", c.integer("num_hidden_layers", 1, kMaxLayers),
                                               c.integer("num_nextn_predict_layers", 0, 64, 0));
  rules.push_back(drop("*mtp.*"));
  return rules + layer_rules() + centred_norm_rules(source);
}

}  // namespace

Arch arch_qwen3_5() {
  return {.model_types = {"qwen3_5_text", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"},
          .gguf = {"qwen35", "qwen35moe"},
          .reference = "transformers Qwen3_5ForCausalLM",
          .build = build,
          .weights = weights,
          .mtp = {.build = mtp,
                  .weights = mtp_rules,
                  .drafters = {"qwen3_5_mtp"},
                  .drafter_weights = drafter_rules},
          .tiny = R"({"model_type": "qwen3_5", "tie_word_embeddings": false, "text_config": {
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "attention_bias": false,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
              "layer_types": ["linear_attention", "full_attention", "linear_attention"],
              "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 24,
              "linear_value_head_dim": 64, "linear_conv_kernel_dim": 3, "num_experts": 0}})"};
}

}  // namespace mlxcel
