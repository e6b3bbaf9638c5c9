// Nemotron-4: LayerNorm with weights stored around zero, half of each head rotated, an ungated squared ReLU.
// Reference: transformers NemotronForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = layer_norms(d.hidden, epsilon(c, "norm_eps", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_act", "relu2");
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false));
  const auto rope = Rope::from(c, d, {.part = 0.5f});
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .qkv_bias = attention_bias, .out_bias = attention_bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = Mlp(layer / "mlp", "up_proj", "down_proj", d.hidden, width, activation, mlp_bias)};
  });
}

}  // namespace

Arch arch_nemotron() {
  return {
      .model_types = {"nemotron"},
      .gguf = {"nemotron"},
      .reference = "transformers NemotronForCausalLM",
      .build = build,
      .weights = {add_constant("*norm.weight", 1.0f)},
      .tiny = R"({"model_type": "nemotron", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "relu2", "max_position_embeddings": 512, "norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "attention_bias": true, "mlp_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
