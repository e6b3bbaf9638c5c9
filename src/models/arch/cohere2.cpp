// Cohere Command R7B: cohere with three sliding layers, which are rotated, to one full one, which is not.
// Reference: transformers Cohere2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.vocab = 256000, .hidden = 8192, .layers = 40, .heads = 64});
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 22528);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const auto norm = layer_norms(d.hidden, epsilon(c, "layer_norm_eps", 1e-5f), Bias::none);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const int pattern = c.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 4096),
                                    [&](int i) { return (i + 1) % pattern != 0; });
  const auto rope = Rope::from(c, d, {.interleaved = true});
  auto model = standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int i, const Weights& layer) {
    return Parallel{.norm = norm(layer, "input_layernorm"),
                    .mixer = Attention(layer / "self_attn", d,
                                       {.rope = rope_if(plan.sliding(i), rope),
                                        .window = plan.window(i),
                                        .qkv_bias = bias,
                                        .out_bias = bias}),
                    .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none)};
  });
  model.logit_scale(factor(c, "logit_scale", 0.0625f));
  return model;
}

}  // namespace

Arch arch_cohere2() {
  return {
      .model_types = {"cohere2"},
      .gguf = {"cohere2"},
      .reference = "transformers Cohere2ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "cohere2", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
              "sliding_window": 8, "sliding_window_pattern": 3, "attention_bias": true, "logit_scale": 0.5,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
