// Jina VLM: the text side, Qwen 3's graph under a trainer's names and nested config. Reference: mlx-vlm
// jina_vlm.
#include "models/kit.h"

namespace mlxcel {

namespace {

struct Sizes {
  Dims dims;
  int width = 0;  // of the feed-forward
  float eps = 0.0f;
  bool qk_norm = true;
};

Sizes sizes(const Config& c) {
  const Config block = c.child("block_config");
  const Config attention = block.child("attn_config"), ffn = block.child("ffn_config"),
               norm = block.child("lnorm_config");
  Sizes s;
  s.dims.vocab = c.integer("vocab_size", 1, kMaxVocab, 151936);
  s.dims.hidden = c.integer("hidden_size", 1, kMaxWidth, 2048);
  s.dims.layers = c.integer(c.has("n_layers") ? "n_layers" : "num_hidden_layers", 1, kMaxLayers, 28);
  s.dims.heads = attention.integer("n_heads", 1, kMaxHeads, 16);
  s.dims.kv_heads = attention.integer("n_kv_heads", 1, kMaxHeads, 8);
  s.dims.head_dim = attention.integer("head_dim", 2, 8192, 128);
  s.dims.max_positions = c.integer("max_sequence_length", 1, kMaxPositions, 40960);
  s.width = ffn.integer("size", 1, kMaxWidth, 6144);
  s.eps = epsilon(norm, "eps", 1e-6f);
  s.qk_norm = attention.get("q_lnorm", true);
  if (s.dims.heads % s.dims.kv_heads != 0 || s.dims.head_dim % 2 != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: block_config.attn_config: {} heads of {} over {} key heads: expected a multiple, and an even "
         "width",
         c.where(), s.dims.heads, s.dims.head_dim, s.dims.kv_heads);
  return s;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const Sizes s = sizes(c);
  const auto norm = rms_norms(s.dims.hidden, s.eps);
  const auto rope = Rope::plain(s.dims.head_dim, factor(c, "rope_theta", 1e6f));
  std::optional<HeadNormOptions> qk_norm;
  if (s.qk_norm) qk_norm = HeadNormOptions{.eps = s.eps};
  if (whole.has("vision_config"))
    w.warn("the text side alone is served: the vision tower is left out, images are refused");
  return standard_decoder(w, s.dims, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "attn_norm"),
                   .mixer = Attention(layer / "attn", s.dims,
                                      {.rope = rope,
                                       .qk_norm = qk_norm,
                                       .qkv_bias = Bias::none,
                                       .out_bias = Bias::none,
                                       .fused = "qkv",
                                       .out = "out"}),
                   .ffn_norm = norm(layer, "ffn_norm"),
                   .ffn = GatedMlp(layer / "ffn", s.dims.hidden, s.width, Activation::silu, Bias::none)};
  });
}

}  // namespace

Arch arch_jina_vlm() {
  return {
      .model_types = {"jina_vlm", "jvlm"},
      .reference = "mlx-vlm jina_vlm",
      .build = build,
      .weights = {drop("vision_model.*"), drop("vl_connector.*"),
                  rename("language_model.lm_head.*", "lm_head.*"), rename("language_model.*", "model.*"),
                  drop("model.embedding.new_embedding"),  // tokens of images
                  rename("model.embedding.embedding", "model.embed_tokens.weight"),
                  rename("model.embedding.weight", "model.embed_tokens.weight"),
                  rename("model.ln_f.*", "model.norm.*"),
                  split("*.ffn.gate_up.weight", {"*.ffn.up_proj.weight", "*.ffn.gate_proj.weight"}),
                  rename("*.ffn.down.*", "*.ffn.down_proj.*")},
      .tiny = R"({"model_type": "jvlm", "text_config": {"vocab_size": 256, "hidden_size": 64, "n_layers": 3,
              "max_sequence_length": 512, "rope_theta": 10000.0, "block_config": {
              "attn_config": {"n_heads": 6, "n_kv_heads": 2, "head_dim": 32, "q_lnorm": true},
              "ffn_config": {"size": 128}, "lnorm_config": {"eps": 1e-6}}, "tie_word_embeddings": false}})"};
}

}  // namespace mlxcel
