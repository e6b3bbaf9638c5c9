// Gemma 3 text decoders: five sliding layers to one full, each kind with its own rotation; norms around every
// sublayer, stored around zero. Reference: transformers Gemma3ForCausalLM.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// Older configs: one base for all of rope_theta and rope_scaling, another for sliding layers.
Rope sliding_rope(const Config& c, const Dims& d) {
  if (!c.child("rope_parameters").empty())
    return Rope::from(c, d, {.theta = 10000.0f, .layer_type = "sliding_attention"});
  return Rope::plain(d.head_dim, c.get("rope_local_base_freq", 10000.0f));
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.vocab = 262208,
                                .hidden = 2304,
                                .layers = 26,
                                .heads = 8,
                                .kv_heads = 4,
                                .head_dim = 256,
                                .max_positions = 131072});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 9216);
  const auto activation = activation_from(c, "hidden_activation", "gelu_pytorch_tanh");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const int pattern = c.integer("sliding_window_pattern", 1, kMaxLayers, 6);
  // Of an embedder's window, half lies to each side.
  const int named = c.integer("sliding_window", 0, kMaxPositions, 4096);
  const int window = w.two_way() && named > 0 ? named / 2 + 1 : named;
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int i) { return (i + 1) % pattern != 0; });
  const float scale =
      1.0f / std::sqrt(static_cast<float>(c.integer("query_pre_attn_scalar", 1, kMaxWidth, 256)));
  const float score_cap = c.get("attn_logit_softcapping", 0.0f);
  const auto full = Rope::from(c, d, {.theta = 1000000.0f, .layer_type = "full_attention"});
  const auto local = sliding_rope(c, d);

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden, root_of_width(w, d.hidden)));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(Sandwich{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps, 1.0f),
                       .mixer = Attention(layer / "self_attn", d,
                                          {.rope = plan.sliding(i) ? local : full,
                                           .qk_norm = HeadNormOptions{.eps = eps, .offset = 1.0f},
                                           .window = plan.window(i),
                                           .scale = scale,
                                           .softcap = score_cap,
                                           .qkv_bias = bias,
                                           .out_bias = bias}),
                       .after_mixer = layer.rms_norm("post_attention_layernorm", d.hidden, eps, 1.0f),
                       .ffn_norm = layer.rms_norm("pre_feedforward_layernorm", d.hidden, eps, 1.0f),
                       .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation),
                       .after_ffn = layer.rms_norm("post_feedforward_layernorm", d.hidden, eps, 1.0f)});
  model.finish(w.rms_norm("model.norm", d.hidden, eps, 1.0f),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(), Tie::unless_shipped));
  model.softcap(c.get("final_logit_softcapping", 0.0f));
  return model;
}

}  // namespace

Arch arch_gemma3_text() {
  return {
      .model_types = {"gemma3_text"},
      .gguf = {"gemma3", "gemma-embedding"},
      .reference = "transformers Gemma3ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "gemma3_text", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 100000.0, "rope_local_base_freq": 10000.0,
              "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "query_pre_attn_scalar": 24,
              "sliding_window": 8, "sliding_window_pattern": 3})"};
}

}  // namespace mlxcel
