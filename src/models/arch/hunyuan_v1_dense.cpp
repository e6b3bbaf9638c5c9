// Hunyuan dense: norms over each head of q and k after their rotation, whose base an alpha stretches.
// Reference: transformers HunYuanDenseV1ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto rope = Rope::from(c, d, {.ntk_alpha = true});
  const Bias bias = bias_if(c.get("attention_bias", false));
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope,
                                       .qk_norm = HeadNormOptions{.eps = eps, .after_rope = true},
                                       .qkv_bias = bias,
                                       .out_bias = bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)};
  });
}

}  // namespace

Arch arch_hunyuan_v1_dense() {
  return {.model_types = {"hunyuan_v1_dense", "hunyuan_dense"},
          .gguf = {"hunyuan-dense"},
          .reference = "transformers HunYuanDenseV1ForCausalLM",
          .build = build,
          .weights = {rename("*.query_layernorm.*", "*.q_norm.*"), rename("*.key_layernorm.*", "*.k_norm.*")},
          .tiny = R"({"model_type": "hunyuan_v1_dense", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 100.0, "rope_scaling": {"type": "dynamic", "alpha": 20.0},
              "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
