// dots.llm1: Qwen3's attention, DeepSeek-V3's experts. Reference: transformers Dots1ForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  auto moe = MoeOptions::grouped(c);
  moe.renormalize = c.get("norm_topk_prob", false);
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const int window = c.integer("sliding_window", 0, kMaxPositions, c.is_null("sliding_window") ? 0 : 4096);
  const int full = c.integer("max_window_layers", 0, kMaxLayers, 62);
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int i) { return window > 0 && i >= full; });

  return sparse_decoder(c, w, d, eps,
                        {[&](int i) {
                           return AttentionOptions{.rope = rope,
                                                   .qk_norm = HeadNormOptions{.eps = eps},
                                                   .window = plan.window(i),
                                                   .qkv_bias = bias,
                                                   .out_bias = bias};
                         },
                         moe, [&](int i) { return is_sparse(c, i, d.layers); }});
}

}  // namespace

Arch arch_dots1() {
  return {.model_types = {"dots1"},
          .gguf = {"dots1"},
          .reference = "transformers Dots1ForCausalLM",
          .build = build,
          .weights = stack_experts(),
          .tiny = R"({"model_type": "dots1", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "attention_bias": true, "sliding_window": 8, "max_window_layers": 2, "first_k_dense_replace": 1,
              "n_routed_experts": 10, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
              "n_group": 2, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
