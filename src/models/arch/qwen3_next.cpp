// Qwen3-Next: gated delta layers, every fourth a gated full attention; experts beside a gated shared one.
// Reference: transformers Qwen3NextForCausalLM.
#include <algorithm>

#include "models/gated_line.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  auto moe = gated_experts(c, 10);
  moe.renormalize = c.get("norm_topk_prob", true);
  return moe;
}

bool is_sparse(const Config& c, int layer) {
  for (const int dense : c.get<std::vector<int>>("mlp_only_layers", {}))
    if (dense == layer) return false;
  return c.integer("num_experts", 0, 4096, 512) > 0 &&
         (layer + 1) % c.integer("decoder_sparse_step", 1, kMaxLayers, 1) == 0;
}

Decoder build(const Config& c, const Weights& w) {
  const int hidden = c.integer("hidden_size", 1, kMaxWidth);
  auto delta = GatedDeltaOptions::from(c, hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  // GGUF files hold q, k, v and z apart.
  const auto full = full_attention_layers(c, c.integer("num_hidden_layers", 1, kMaxLayers));
  const auto linear = std::find(full.begin(), full.end(), false);
  delta.fused = linear == full.end() ||
                !w.has(fmt::format("model.layers.{}.linear_attn.in_proj_qkv.weight", linear - full.begin()));
  return gated_decoder(c, w, delta, c.get("tie_word_embeddings", false), [&](int i, const Weights& mlp) {
    if (is_sparse(c, i)) return Ffn(SparseMoe(mlp, hidden, experts(c)));
    return Ffn(GatedMlp(mlp, hidden, c.integer("intermediate_size", 1, kMaxWidth), delta.activation));
  });
}

std::vector<Rule> weights(const Config& c, const Source& source) {
  // GGUF files number the layers of next-token prediction on.
  auto rules = drop_layers("model.layers", c.integer("num_hidden_layers", 1, kMaxLayers),
                           c.integer("num_nextn_predict_layers", 0, 64, 0)) +
               std::vector<Rule>{drop("mtp.*"), drop("model.mtp.*")} + stack_experts();
  const auto names = source.names();
  if (std::any_of(names.begin(), names.end(),
                  [](const auto& n) { return n.ends_with(".in_proj_qkv.weight"); })) {
    const auto delta = GatedDeltaOptions::from(c, 1, 1e-6f);
    rules.push_back(split("*.linear_attn.in_proj_ba.weight",
                          {"*.linear_attn.in_proj_b.weight", "*.linear_attn.in_proj_a.weight"},
                          {delta.value_heads, delta.value_heads}, delta.key_heads));
  }
  for (Rule& rule : centred_norm_rules(source)) rules.push_back(std::move(rule));
  return rules;
}

MtpBlock mtp(const Config& c, const Weights& w) {
  return gated_mtp(c, w, [&](const Weights& mlp) {
    return SparseMoe(mlp, c.integer("hidden_size", 1, kMaxWidth), experts(c));
  });
}

std::vector<Rule> mtp_rules(const Config&, const Source& source) {
  return gated_mtp_rules(
      std::vector<Rule>{rename("model.mtp.*", "mtp.*")} + mtp_rules_of("mtp.") + stack_experts(), source);
}

}  // namespace

Arch arch_qwen3_next() {
  return {
      .model_types = {"qwen3_next", "qwen3next"},
      .gguf = {"qwen3next"},
      .reference = "transformers Qwen3NextForCausalLM",
      .build = build,
      .weights = weights,
      .mtp = {.build = mtp, .weights = mtp_rules},
      .tiny = R"({"model_type": "qwen3_next", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "attention_bias": true,
              "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "full_attention_interval": 2,
              "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 20,
              "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
              "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "shared_expert_intermediate_size": 64, "decoder_sparse_step": 1, "mlp_only_layers": [1],
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
