// Llama and what shares its graph: Mistral, SmolLM, Yi, DeepSeek distills.
// Reference: transformers LlamaForCausalLM, MistralForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// What a config leaves out. Files of models with towers do: their text_config holds what differs from this.
struct Defaults {
  Dims dims;
  int width, window;
  float eps = 1e-6f;
};

Defaults defaults_of(const std::string& type) {
  if (type == "mistral")
    return {{.vocab = 32000, .hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 8}, 14336, 4096};
  if (type == "iquestcoder")
    return {{.vocab = 76800, .hidden = 5120, .layers = 80, .heads = 40, .kv_heads = 8, .head_dim = 128},
            27648,
            0,
            1e-5f};
  return {{.vocab = 32000, .hidden = 4096, .layers = 32, .heads = 32}, 11008, 0};
}

Decoder build(const Config& c, const Weights& w) {
  const auto type = c.get<std::string>("model_type", "");
  const Defaults defaults = defaults_of(type);
  const auto d = Dims::from(c, defaults.dims);
  if (type == "iquestcoder")
    for (const bool changed : {c.has("clip_qkv"), c.get("use_sliding_window", false)})
      if (changed)
        fail(ErrorKind::unsupported, "{}: clip_qkv and use_sliding_window are not supported for iquestcoder",
             c.where());
  const bool attention_bias = c.get("attention_bias", false), mlp_bias = c.get("mlp_bias", false);
  const int window =
      c.integer("sliding_window", 0, kMaxPositions, c.is_null("sliding_window") ? 0 : defaults.window);
  const int width = c.integer("intermediate_size", 1, kMaxWidth, defaults.width);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const bool mistral = type == "mistral";
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int) { return mistral && window > 0; });
  const auto rope = Rope::from(c, d);

  return pre_norm_decoder(c, w, d, epsilon(c, "rms_norm_eps", defaults.eps),
                          {.mixer =
                               [&](int i, const Weights& layer) {
                                 return Attention(layer / "self_attn", d,
                                                  {.rope = rope,
                                                   .window = plan.window(i),
                                                   .qkv_bias = bias_if(attention_bias),
                                                   .out_bias = bias_if(attention_bias)});
                               },
                           .ffn =
                               [&](int, const Weights& layer) {
                                 return GatedMlp(layer / "mlp", d.hidden, width, activation,
                                                 bias_if(mlp_bias));
                               }});
}

}  // namespace

Arch arch_llama() {
  return {.model_types = {"llama", "mistral", "iquestcoder", "llama_bidirec"},
          .gguf = {"llama", "llama-embed"},
          .reference = "transformers LlamaForCausalLM, MistralForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-2, "rope_theta": 10000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
              "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 8,
              "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
