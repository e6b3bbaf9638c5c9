// Falcon OCR: the text side. Norms without weights, of q and k too; the first half of each head turns with
// the position (the second with a place in an image, which text has none of); sinks, a gated squared ReLU.
// Reference: mlx-vlm falcon_ocr.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// Sizes under the publisher's names, or under those of converted files.
Dims dims(const Config& c) {
  const auto size = [&](const char* key, const char* other, int high, int fallback) {
    return c.integer(c.has(key) ? key : other, 1, high, fallback);
  };
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab, 65536);
  d.hidden = size("dim", "hidden_size", kMaxWidth, 768);
  d.layers = size("n_layers", "num_hidden_layers", kMaxLayers, 22);
  d.heads = size("n_heads", "num_attention_heads", kMaxHeads, 16);
  d.kv_heads = size("n_kv_heads", "num_key_value_heads", kMaxHeads, 8);
  d.head_dim = c.integer("head_dim", 4, 8192, 64);
  d.max_positions = size("max_seq_len", "max_position_embeddings", kMaxPositions, 8192);
  if (d.heads % d.kv_heads != 0 || d.head_dim % 4 != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: {} heads of {} over {} key heads: expected a multiple, and a head width that is one of 4",
         c.where(), d.heads, d.head_dim, d.kv_heads);
  return d;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const Dims d = dims(c);
  const float eps = epsilon(c, c.has("norm_eps") ? "norm_eps" : "rms_norm_eps", 1e-5f);
  const int width = c.integer(c.has("ffn_dim") ? "ffn_dim" : "intermediate_size", 1, kMaxWidth, 2304);
  const auto rope = Rope::plain(d.head_dim / 2, factor(c, "rope_theta", 10000.0f), /*interleaved=*/true);
  const Norm plain = RmsNorm{.weight = {}, .eps = eps};
  if (whole.has("spatial_patch_size") || whole.has("img_id") || whole.has("vision_config"))
    w.warn("the text side alone is served: the projector of patches is left out, images are refused");
  return standard_decoder(
      w, d, rms_norms(d.hidden, eps), {.tie = tied(c, false)}, [&](int, const Weights& layer) {
        return PreNorm{.mixer_norm = plain,
                       .mixer = Attention(layer / "self_attn", d,
                                          {.rope = rope,
                                           .qk_norm = HeadNormOptions{.eps = eps, .weighted = false},
                                           .sinks = true,
                                           .qkv_bias = Bias::none,
                                           .out_bias = Bias::none,
                                           .fused = "wqkv",
                                           .out = "wo"}),
                       .ffn_norm = plain,
                       .ffn = GatedMlp(layer / "mlp", d.hidden, width, Activation::relu2, Bias::none)};
      });
}

/// Published files hold rows of gate and up in turn, converted ones gate first.
std::vector<Rule> rules(const Config&, const Source& source) {
  bool converted = false;
  for (const std::string& name : source.names()) converted |= name.starts_with("language_model.");
  const std::vector<std::string> halves{"*.mlp.gate_proj.weight", "*.mlp.up_proj.weight"};
  return {rename("language_model.*", "*"),
          drop("*img_projector.*"),
          drop("*freqs_cis_golden"),
          drop("model.cos_1d"),
          drop("model.sin_1d"),
          rename("tok_embeddings.*", "model.embed_tokens.*"),
          rename("norm.*", "model.norm.*"),
          rename("output.*", "lm_head.*"),
          rename("layers.#.attention.*", "model.layers.#.self_attn.*"),
          rename("layers.#.feed_forward.*", "model.layers.#.mlp.*"),
          converted ? split("*.mlp.w13.weight", halves) : deal(0, "*.mlp.w13.weight", halves),
          rename("*.mlp.w2.*", "*.mlp.down_proj.*")};
}

}  // namespace

Arch arch_falcon_ocr() {
  return {.model_types = {"falcon_ocr"},
          .reference = "mlx-vlm falcon_ocr",
          .build = build,
          .weights = rules,
          .tiny = R"({"model_type": "falcon_ocr", "vocab_size": 256, "dim": 64, "ffn_dim": 128, "n_layers": 3,
              "n_heads": 6, "n_kv_heads": 2, "head_dim": 32, "max_seq_len": 512, "norm_eps": 1e-5,
              "rope_theta": 10000.0})"};
}

}  // namespace mlxcel
