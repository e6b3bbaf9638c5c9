// Arcee Trinity: windows with a rotation, global layers without; a sigmoid on what attention gives, norms
// around every sublayer, DeepSeek-V3's scores. Reference: transformers AfmoeForCausalLM.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts);
  moe.width = c.integer("moe_intermediate_size", 1, 1 << 16);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.router = "router.gate";
  moe.scoring = Scoring::sigmoid;
  moe.correction = "expert_bias";
  moe.renormalize = true;
  moe.renorm_eps = 1e-20f;
  moe.scale = c.get("route_scale", 1.0f);
  moe.bank = "switch_mlp";
  moe.shared.width = moe.width * c.integer("num_shared_experts", 0, 16, 2);
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d);
  const int period = c.integer("global_attn_every_n_layers", 1, kMaxLayers, 4);
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 1024),
                                    [&](int i) { return (i + 1) % period != 0; });
  const int dense = c.integer("num_dense_layers", 0, kMaxLayers, 1);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const float scale = c.get("mup_enabled", false) ? std::sqrt(static_cast<float>(d.hidden)) : 1.0f;

  return standard_decoder(
      w, d, norm, {.tie = tied(c, false), .embedding_scale = scale}, [&](int i, const Weights& layer) {
        return Sandwich{.mixer_norm = norm(layer, "input_layernorm"),
                        .mixer = Attention(layer / "self_attn", d,
                                           {.rope = rope_if(plan.sliding(i), rope),
                                            .qk_norm = HeadNormOptions{.eps = eps},
                                            .window = plan.window(i),
                                            .gate = OutputGate{},
                                            .qkv_bias = bias,
                                            .out_bias = bias}),
                        .after_mixer = norm(layer, "post_attention_layernorm"),
                        .ffn_norm = norm(layer, "pre_mlp_layernorm"),
                        .ffn = sparse_or_dense(layer / "mlp", c, d.hidden, moe, i >= dense),
                        .after_ffn = norm(layer, "post_mlp_layernorm")};
      });
}

}  // namespace

Arch arch_afmoe() {
  return {.model_types = {"afmoe"},
          .gguf = {"afmoe"},
          .reference = "transformers AfmoeForCausalLM",
          .build = build,
          .weights = stack_experts(),
          .tiny = R"({"model_type": "afmoe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "attention_bias": true, "global_attn_every_n_layers": 2, "sliding_window": 8, "num_dense_layers": 1,
              "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "num_shared_experts": 1,
              "route_scale": 2.5, "mup_enabled": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
