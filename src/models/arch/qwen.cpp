// Qwen 1: q, k and v in one biased matrix, w1 and w2 of half the stated width, a head of its own. Reference:
// mlx-lm qwen.
#include "models/kit.h"

namespace mlxcel {

namespace {

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = d.kv_heads = c.integer("num_attention_heads", 1, kMaxHeads);
  d.head_dim = c.integer("kv_channels", 1, 8192, 128);
  d.max_positions = c.integer("max_position_embeddings", 0, kMaxPositions, 8192);
  return d;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "layer_norm_epsilon", 1e-6f));
  const int width = c.integer("intermediate_size", 2, kMaxWidth) / 2;
  const Bias bias = c.get("no_bias", true) ? Bias::none : Bias::required;
  const auto rope = Rope::plain(d.head_dim, c.get("rotary_emb_base", 10000.0f));
  return standard_decoder(w, d, norm, {.head_bias = bias}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "ln_1"),
        .mixer = Attention(
            layer / "attn", d,
            {.rope = rope, .qkv_bias = Bias::required, .out_bias = bias, .fused = "c_attn", .out = "c_proj"}),
        .ffn_norm = norm(layer, "ln_2"),
        .ffn = GatedMlp(layer / "mlp", d.hidden, width, Activation::silu, bias, {"w2", "w1", "c_proj"})};
  });
}

}  // namespace

Arch arch_qwen() {
  return {
      .model_types = {"qwen"},
      .gguf = {"qwen"},
      .reference = "mlx-lm qwen",
      .build = build,
      .weights = {rename("transformer.wte.*", "model.embed_tokens.*"),
                  rename("transformer.ln_f.*", "model.norm.*"), rename("transformer.h.*", "model.layers.*")},
      .tiny = R"({"model_type": "qwen", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 256,
              "num_hidden_layers": 3, "num_attention_heads": 6, "kv_channels": 32,
              "max_position_embeddings": 512, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000,
              "no_bias": false})"};
}

}  // namespace mlxcel
