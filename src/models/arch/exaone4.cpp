// EXAONE 4: norms on what the sublayers give; sliding layers are rotated, full ones are not, unless no layer
// slides. Reference: transformers Exaone4ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// Which layers slide by sliding_window_pattern: every n-th is full, or a string of L (local) and G (global).
bool slides(const Config& c, int layer) {
  if (!c.is_string("sliding_window_pattern"))
    return (layer + 1) % c.integer("sliding_window_pattern", 1, kMaxLayers, 4) != 0;
  const auto pattern = c.get<std::string>("sliding_window_pattern");
  if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos)
    fail(ErrorKind::bad_checkpoint, "{}: sliding_window_pattern: expected letters L and G, found \"{}\"",
         c.where(), pattern);
  return pattern[static_cast<size_t>(layer) % pattern.size()] == 'L';
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const int window = c.is_null("sliding_window") ? 0 : c.integer("sliding_window", 1, kMaxPositions, 4096);
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int i) { return window > 0 && slides(c, i); });
  const auto rope = Rope::from(c, d);
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    return NormAfter{.mixer = Attention(layer / "self_attn", d,
                                        {.rope = rope_if(window == 0 || plan.sliding(i), rope),
                                         .qk_norm = HeadNormOptions{.eps = eps},
                                         .window = plan.window(i),
                                         .qkv_bias = Bias::none,
                                         .out_bias = Bias::none}),
                     .after_mixer = norm(layer, "post_attention_layernorm"),
                     .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none),
                     .after_ffn = norm(layer, "post_feedforward_layernorm")};
  });
}

}  // namespace

Arch arch_exaone4() {
  return {
      .model_types = {"exaone4"},
      .gguf = {"exaone4"},
      .reference = "transformers Exaone4ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "exaone4", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "sliding_window": 8, "sliding_window_pattern": "LLG", "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
