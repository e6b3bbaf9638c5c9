// Qwen3 dense decoders: a norm on each head of q and k. Reference: transformers Qwen3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(
      c, {.vocab = 151936, .hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 32, .head_dim = 128});
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 22016);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const bool attention_bias = c.get("attention_bias", false), slides = c.get("use_sliding_window", false);
  const int window = slides ? c.integer("sliding_window", 1, kMaxPositions, 4096) : 0;
  const int first_sliding = c.integer("max_window_layers", 0, kMaxLayers, 28);
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int i) { return slides && i >= first_sliding; });
  const bool sees = c.get<std::string>("model_type", "").starts_with("qwen3_vl");
  const auto rope = Rope::from(c, d, {.theta = sees ? 500000.0f : 10000.0f});

  return pre_norm_decoder(c, w, d, eps,
                          {.mixer =
                               [&](int i, const Weights& layer) {
                                 return Attention(layer / "self_attn", d,
                                                  {.rope = rope,
                                                   .qk_norm = HeadNormOptions{.eps = eps},
                                                   .window = plan.window(i),
                                                   .qkv_bias = bias_if(attention_bias),
                                                   .out_bias = bias_if(attention_bias)});
                               },
                           .ffn =
                               [&](int, const Weights& layer) {
                                 return GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none);
                               }});
}

}  // namespace

Arch arch_qwen3() {
  return {.model_types = {"qwen3", "qwen3_vl_text"},
          .gguf = {"qwen3"},
          .reference = "transformers Qwen3ForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "qwen3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                  "original_max_position_embeddings": 128},
              "attention_bias": false, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
