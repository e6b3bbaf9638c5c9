// RWKV-7 (Goose): layers of time mixing and channel mixing. Reference: mlx-lm rwkv7; Peng et al. 2025.
#include <memory>

#include "models/kit.h"
#include "nn/wkv.h"

namespace mlxcel {

namespace {

/// Both sublayers look at the token before.
struct Layer {
  std::optional<LayerNorm> first;  // of the embedding
  LayerNorm norm, ffn_norm;
  TimeMixing mixer;
  ChannelMixing ffn;

  array operator()(const array& in, Step& step) const {
    const array h = first ? (*first)(in) : in;
    const array mixed = mixer(norm(h), step, h);
    return ffn(ffn_norm(mixed), step, mixed);
  }
};

Decoder build(const Config& c, const Weights& w) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  const float eps = epsilon(c, "norm_eps", 1e-5f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  TimeMixingSizes s{.hidden = d.hidden,
                    .heads = 0,
                    .head_dim = c.integer("head_dim", 1, 8192, 64),
                    .decay_rank = c.integer("decay_low_rank_dim", 1, kMaxWidth),
                    .rate_rank = c.integer("a_low_rank_dim", 1, kMaxWidth),
                    .value_rank = c.integer("v_low_rank_dim", 1, kMaxWidth),
                    .gate_rank = c.integer("gate_low_rank_dim", 1, kMaxWidth)};
  if (d.hidden % s.head_dim != 0)
    fail(ErrorKind::bad_checkpoint, "{}: hidden_size {}: expected a multiple of head_dim {}", c.where(),
         d.hidden, s.head_dim);
  s.heads = d.hidden / s.head_dim;
  const auto values = std::make_shared<std::optional<array>>();

  Decoder model(d, w.embedding("model.embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(
        Layer{.first = i == 0 ? std::optional(layer.layer_norm("pre_norm", d.hidden, eps)) : std::nullopt,
              .norm = layer.layer_norm("attn_norm", d.hidden, eps),
              .ffn_norm = layer.layer_norm("ffn_norm", d.hidden, eps),
              .mixer = TimeMixing(layer / "attn", s, i == 0, values),
              .ffn = ChannelMixing(layer / "ffn", d.hidden, width)});
  model.finish(w.layer_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embeddings", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

}  // namespace

Arch arch_rwkv7() {
  return {.model_types = {"rwkv7"},
          .gguf = {"rwkv7"},
          .reference = "mlx-lm rwkv7",
          .build = build,
          .weights = {split("*.attn.x_rwkvag", {"*.attn.x_r", "*.attn.x_w", "*.attn.x_k", "*.attn.x_v",
                                                "*.attn.x_a", "*.attn.x_g"})},
          .tiny = R"({"model_type": "rwkv7", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "head_dim": 32, "norm_eps": 1e-5, "decay_low_rank_dim": 64,
              "a_low_rank_dim": 64, "v_low_rank_dim": 64, "gate_low_rank_dim": 64, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
