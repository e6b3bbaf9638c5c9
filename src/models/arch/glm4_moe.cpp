// GLM-4.5 and 4.6: grouped attention with half of each head rotated, DeepSeek-V3's experts. Reference:
// transformers Glm4MoeForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto moe = MoeOptions::grouped(c);
  const auto rope = Rope::from(c, d, {.part = 0.5f});
  std::optional<HeadNormOptions> head_norm;
  if (c.get("use_qk_norm", false)) head_norm = HeadNormOptions{.eps = eps};

  return sparse_decoder(c, w, d, eps,
                        {[&](int) {
                           return AttentionOptions{.rope = rope,
                                                   .qk_norm = head_norm,
                                                   .qkv_bias = bias_if(c.get("attention_bias", false)),
                                                   .out_bias = Bias::none};
                         },
                         moe, [&](int i) { return is_sparse(c, i, d.layers, 1); }});
}

std::vector<Rule> rules(const Config& c, const Source&) {
  return drop_layers("model.layers", c.integer("num_hidden_layers", 1, kMaxLayers),
                     c.integer("num_nextn_predict_layers", 0, 64, 1)) +
         stack_experts();
}

MtpBlock mtp(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const Weights layer = w / "mtp";
  std::optional<HeadNormOptions> head_norm;
  if (c.get("use_qk_norm", false)) head_norm = HeadNormOptions{.eps = eps};
  const AttentionOptions attention{.rope = Rope::from(c, d, {.part = 0.5f}),
                                   .qk_norm = head_norm,
                                   .qkv_bias = bias_if(c.get("attention_bias", false)),
                                   .out_bias = Bias::none};
  return deepseek_mtp(layer, d.hidden, eps,
                      {PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                               .mixer = Attention(layer / "self_attn", d, attention),
                               .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                               .ffn = SparseMoe(layer / "mlp", d.hidden, MoeOptions::grouped(c))}});
}

std::vector<Rule> mtp_rules(const Config& c, const Source&) {
  return mtp_layer_rules(c.integer("num_hidden_layers", 1, kMaxLayers)) + stack_experts();
}

}  // namespace

Arch arch_glm4_moe() {
  return {
      .model_types = {"glm4_moe"},
      .gguf = {"glm4moe"},
      .reference = "transformers Glm4MoeForCausalLM",
      .build = build,
      .weights = rules,
      .mtp = {.build = mtp, .weights = mtp_rules},
      .tiny = R"({"model_type": "glm4_moe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "attention_bias": true, "use_qk_norm": true,
              "first_k_dense_replace": 1, "n_routed_experts": 9, "n_shared_experts": 1, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "n_group": 3, "topk_group": 2, "norm_topk_prob": true,
              "routed_scaling_factor": 1.5, "num_nextn_predict_layers": 1, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
