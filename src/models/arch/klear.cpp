// Klear: Qwen3's attention; sigmoid experts chosen with a bias, blended with shared ones by a learned pair of
// weights. Reference: mlx-lm Klear.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  auto moe = MoeOptions::grouped(c);
  moe.groups = moe.kept_groups = 1;
  moe.renorm_eps = 0.0f;
  moe.scale = 1.0f;
  moe.correction = "expert_bias";
  moe.bank = "experts";
  moe.shared.mix = SharedMix::coefficient;
  moe.shared.gate = "coefficient";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));

  return sparse_decoder(
      c, w, d, eps,
      {[&](int) {
         return AttentionOptions{
             .rope = rope, .qk_norm = HeadNormOptions{.eps = eps}, .qkv_bias = bias, .out_bias = bias};
       },
       moe, [&](int i) { return is_sparse_by_step(c, i); }});
}

}  // namespace

Arch arch_klear() {
  return {.model_types = {"Klear"},
          .gguf = {},
          .reference = "mlx-lm Klear",
          .build = build,
          .weights = {stack("*.mlp.experts.#.*", "*.mlp.experts.*")},
          .tiny = R"({"model_type": "Klear", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true,
              "num_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
              "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1],
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
