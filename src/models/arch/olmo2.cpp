// OLMo 2: norms on what the sublayers give, and over the whole width of q and k. Reference: transformers
// Olmo2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rope = Rope::from(c, d);
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return NormAfter{
        .mixer = Attention(layer / "self_attn", d,
                           {.rope = rope,
                            .qk_norm = HeadNormOptions{.eps = eps, .over = HeadNormOptions::Over::width},
                            .qkv_bias = bias,
                            .out_bias = bias}),
        .after_mixer = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none),
        .after_ffn = norm(layer, "post_feedforward_layernorm")};
  });
}

}  // namespace

Arch arch_olmo2() {
  return {.model_types = {"olmo2"},
          .gguf = {"olmo2"},
          .reference = "transformers Olmo2ForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "olmo2", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
