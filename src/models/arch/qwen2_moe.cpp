// Qwen2 sparse decoders: qwen2's attention, small experts and a gated shared one. Reference: transformers
// Qwen2MoeForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  moe.renormalize = c.get("norm_topk_prob", false);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  moe.bank = "switch_mlp";
  moe.shared = {.width = c.integer("shared_expert_intermediate_size", 1, kMaxWidth),
                .mix = SharedMix::gated,
                .name = "shared_expert",
                .gate = "shared_expert_gate"};
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d);
  const bool windows = c.get("use_sliding_window", false);
  const int windowed = c.integer("max_window_layers", 0, kMaxLayers, 28);
  const auto plan =
      LayerPlan::from(c, d.layers, windows ? c.integer("sliding_window", 1, kMaxPositions, 4096) : 0,
                      [&](int i) { return windows && i % 2 == 0 && i < windowed; });

  return sparse_decoder(c, w, d, eps,
                        {[&](int i) {
                           return AttentionOptions{.rope = rope,
                                                   .window = plan.window(i),
                                                   .qkv_bias = bias_if(c.get("qkv_bias", true)),
                                                   .out_bias = Bias::none};
                         },
                         moe, [&](int i) { return is_sparse_by_step(c, i); }});
}

}  // namespace

Arch arch_qwen2_moe() {
  return {
      .model_types = {"qwen2_moe"},
      .gguf = {"qwen2moe"},
      .reference = "transformers Qwen2MoeForCausalLM",
      .build = build,
      .weights = stack_experts(),
      .tiny = R"({"model_type": "qwen2_moe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "num_experts": 7,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 192,
              "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": [1],
              "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2, "qkv_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
