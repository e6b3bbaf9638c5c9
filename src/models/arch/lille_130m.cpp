// Lille: Llama's graph with the norms kept inside the sublayers, rotated in adjacent pairs; the feed-forward
// width follows from the model's. Reference: mlx-lm lille-130m.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("n_embd", 1, kMaxWidth);
  d.layers = c.integer("n_layer", 1, kMaxLayers);
  d.heads = c.integer("n_head", 1, kMaxHeads);
  d.kv_heads = c.integer("n_kv_heads", 1, kMaxHeads);
  d.max_positions = c.integer("block_size", 1, kMaxPositions);
  if (d.heads % d.kv_heads != 0 || d.hidden % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: width {} with {} heads over {} kv heads: expected whole multiples",
         c.where(), d.hidden, d.heads, d.kv_heads);
  d.head_dim = d.hidden / d.heads;
  // To the nearest multiple of 256, halves to even, as the reference rounds.
  const int width = 256 * static_cast<int>(std::nearbyint((8LL * d.hidden / 3) / 256.0));
  const auto norm = rms_norms(d.hidden, epsilon(c, "layer_norm_eps", 1e-5f));
  const auto rope = Rope::plain(d.head_dim, c.get<float>("rope_theta"), true);
  return standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer / "attention", "norm"),
                   .mixer = Attention(layer / "attention", d,
                                      {.rope = rope,
                                       .qkv_bias = Bias::none,
                                       .out_bias = Bias::none,
                                       .fused = "qkv_proj",
                                       .out = "out_proj"}),
                   .ffn_norm = norm(layer / "feed_forward", "norm"),
                   .ffn = GatedMlp(layer / "feed_forward", d.hidden, width, Activation::silu, Bias::none)};
  });
}

}  // namespace

Arch arch_lille_130m() {
  return {.model_types = {"lille-130m"},
          .reference = "mlx-lm lille-130m",
          .build = build,
          .weights = {drop("*rotary_emb*"), rename("transformer.tok_embeddings.*", "model.embed_tokens.*"),
                      rename("transformer.*", "model.*")},
          .tiny = R"({"model_type": "lille-130m", "vocab_size": 256, "n_embd": 192, "n_layer": 3, "n_head": 6,
              "n_kv_heads": 2, "block_size": 512, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
