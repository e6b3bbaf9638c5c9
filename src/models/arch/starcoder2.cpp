// StarCoder2: LayerNorm, an ungated MLP, biases everywhere by one switch. Reference: transformers
// Starcoder2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 2});
  const auto norm = layer_norms(d.hidden, epsilon(c, "norm_epsilon", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_act", "gelu_pytorch_tanh");
  const Bias bias = c.get("use_bias", true) ? Bias::required : Bias::none;
  const int window = c.integer("sliding_window", 0, kMaxPositions, 0);
  const auto rope = Rope::from(c, d);
  return standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .window = window, .qkv_bias = bias, .out_bias = bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = Mlp(layer / "mlp", "c_fc", "c_proj", d.hidden, width, activation, bias)};
  });
}

}  // namespace

Arch arch_starcoder2() {
  return {
      .model_types = {"starcoder2"},
      .gguf = {"starcoder2"},
      .reference = "transformers Starcoder2ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "starcoder2", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
              "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 512, "norm_epsilon": 1e-5,
              "rope_theta": 10000.0, "sliding_window": 8, "use_bias": true, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
