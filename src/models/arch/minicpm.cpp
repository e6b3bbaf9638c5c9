// MiniCPM 1 and 2: Llama with scaled embeddings, residual branches and logits. Reference: mlx-lm minicpm; a
// tied head is scaled too, as the publisher has it.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto rope = Rope::from(c, d);
  const float branches = factor(c, "scale_depth") / std::sqrt(static_cast<float>(d.layers));
  const StandardOptions options{.tie = tied(c, true), .embedding_scale = factor(c, "scale_emb")};
  auto model = standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .qkv_bias = Bias::none, .out_bias = Bias::none}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none),
                   .scale = branches};
  });
  model.logit_scale(static_cast<float>(c.integer("dim_model_base", 1, kMaxWidth)) /
                    static_cast<float>(d.hidden));
  return model;
}

}  // namespace

Arch arch_minicpm() {
  return {
      .model_types = {"minicpm"},
      .gguf = {"minicpm"},
      .reference = "mlx-lm minicpm",
      .build = build,
      .tiny = R"({"model_type": "minicpm", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "dim_model_base": 64, "scale_depth": 0.7, "scale_emb": 3.0, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
