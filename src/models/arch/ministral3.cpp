// Ministral 3: Mistral with yarn and queries that grow with their position. Reference: transformers
// Ministral3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

QueryTemperature temperature(const Config& c) {
  const Config rope = c.child("rope_parameters");
  const auto scaling = rope.empty() ? c.child("rope_scaling") : rope;
  return {.factor = scaling.get<float>("llama_4_scaling_beta"),
          .length = scaling.integer("original_max_position_embeddings", 1, kMaxPositions)};
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(
      c, {.vocab = 131072, .hidden = 4096, .layers = 34, .heads = 32, .kv_heads = 8, .head_dim = 128});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 14336);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const int window = c.integer("sliding_window", 0, kMaxPositions, 0);
  const auto rope = Rope::from(c, d, {.theta = 1000000.0f});
  const auto warmth = temperature(c);
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope,
                                       .window = window,
                                       .temperature = warmth,
                                       .qkv_bias = Bias::none,
                                       .out_bias = Bias::none}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none)};
  });
}

}  // namespace

Arch arch_ministral3() {
  return {
      .model_types = {"ministral3"},
      .gguf = {"mistral3"},
      .reference = "transformers Ministral3ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "ministral3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                  "original_max_position_embeddings": 12, "llama_4_scaling_beta": 0.6},
              "sliding_window": 20, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
