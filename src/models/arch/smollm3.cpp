// SmolLM3: Llama with layers that are not rotated, every fourth or those of a list. Reference: transformers
// SmolLM3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 4});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false));
  const auto rotated = rotated_layers(c, d.layers, 4);
  const int window =
      c.get("use_sliding_window", false) ? c.integer("sliding_window", 0, kMaxPositions, 0) : 0;
  const auto plan = LayerPlan::from(c, d.layers, window,
                                    [&](int i) { return window > 0 && !rotated[static_cast<size_t>(i)]; });
  const auto rope = Rope::from(c, d, {.theta = 2000000.0f});
  return standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int i, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope_if(rotated[static_cast<size_t>(i)], rope),
                                       .window = plan.window(i),
                                       .qkv_bias = attention_bias,
                                       .out_bias = attention_bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, mlp_bias)};
  });
}

}  // namespace

Arch arch_smollm3() {
  return {
      .model_types = {"smollm3"},
      .gguf = {"smollm3"},
      .reference = "transformers SmolLM3ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "smollm3", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 8,
              "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
