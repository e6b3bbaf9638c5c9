// OLMo 3: olmo2 with three sliding layers to one full; only full layers have a scaled rotation. Reference:
// transformers Olmo3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Rope rope_of(const Config& c, const Dims& d, bool sliding) {
  if (sliding && c.child("rope_parameters").empty())  // an older config scales full layers only
    return Rope::plain(d.head_dim, c.get("rope_theta", 500000.0f));
  return Rope::from(c, d,
                    {.theta = 500000.0f, .layer_type = sliding ? "sliding_attention" : "full_attention"});
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 4096),
                                    [](int i) { return (i + 1) % 4 != 0; });
  const auto full = rope_of(c, d, false), local = rope_of(c, d, true);
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    return NormAfter{
        .mixer = Attention(layer / "self_attn", d,
                           {.rope = plan.sliding(i) ? local : full,
                            .qk_norm = HeadNormOptions{.eps = eps, .over = HeadNormOptions::Over::width},
                            .window = plan.window(i),
                            .qkv_bias = bias,
                            .out_bias = bias}),
        .after_mixer = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none),
        .after_ffn = norm(layer, "post_feedforward_layernorm")};
  });
}

}  // namespace

Arch arch_olmo3() {
  return {.model_types = {"olmo3"},
          .gguf = {"olmo2"},
          .reference = "transformers Olmo3ForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "olmo3", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
                               "attention_factor": 1.2},
              "sliding_window": 8, "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
