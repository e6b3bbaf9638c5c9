// Kyutai Helium: Llama rotated in adjacent pairs. Reference: transformers HeliumForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 20, .head_dim = 128});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-8f));
  const auto rope = Rope::from(c, d, {.theta = 100000.0f, .interleaved = true});
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false));
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .qkv_bias = attention_bias, .out_bias = Bias::none}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, mlp_bias)};
  });
}

}  // namespace

Arch arch_helium() {
  return {.model_types = {"helium"},
          .reference = "transformers HeliumForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "helium", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-8,
              "rope_theta": 10000.0, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
