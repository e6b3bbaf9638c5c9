// DeepSeek v1 with experts: Llama's attention, softmax experts beside shared ones. Reference: mlx-lm
// deepseek.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  auto moe = MoeOptions::grouped(c);
  moe.scoring = Scoring::softmax;
  moe.correction.clear();
  moe.renormalize = c.get("norm_topk_prob", false);
  moe.groups = moe.kept_groups = 1;
  moe.scale = 1.0f;
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));

  return sparse_decoder(
      c, w, d, epsilon(c, "rms_norm_eps", 1e-6f),
      {[&](int) { return AttentionOptions{.rope = rope, .qkv_bias = bias, .out_bias = bias}; }, moe,
       [&](int i) { return is_sparse(c, i, d.layers); }});
}

}  // namespace

Arch arch_deepseek() {
  return {
      .model_types = {"deepseek"},
      .gguf = {"deepseek"},
      .reference = "mlx-lm deepseek",
      .build = build,
      .weights = stack_experts(),
      .tiny = R"({"model_type": "deepseek", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true,
              "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 7, "n_shared_experts": 2,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": false,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
