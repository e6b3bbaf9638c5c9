// Apple OpenELM: head counts and feed-forward width of their own for every layer. Reference: mlx-lm openelm.
#include <algorithm>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// `value` to the nearest multiple, but not below nine tenths of it.
int rounded_to(double value, int divisor) {
  int result = std::max(divisor, static_cast<int>(value + divisor / 2.0) / divisor * divisor);
  if (result < 0.9 * value) result += divisor;
  return result;
}

template <class T>
std::vector<T> one_a_layer(const Config& c, const char* key, int layers) {
  auto list = c.get<std::vector<T>>(key);
  if (static_cast<int>(list.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} numbers (num_transformer_layers), found {}",
         c.where(), key, layers, list.size());
  return list;
}

Decoder build(const Config& c, const Weights& w) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("model_dim", 1, kMaxWidth);
  d.layers = c.integer("num_transformer_layers", 1, kMaxLayers);
  d.head_dim = c.integer("head_dim", 2, 8192);
  d.max_positions = c.integer("max_context_length", 0, kMaxPositions, 2048);
  if (!c.get("ffn_with_glu", true))
    fail(ErrorKind::unsupported, "{}: ffn_with_glu false: no published OpenELM has it", c.where());
  const auto heads = one_a_layer<int>(c, "num_query_heads", d.layers),
             kv = one_a_layer<int>(c, "num_kv_heads", d.layers);
  const auto widths = one_a_layer<float>(c, "ffn_multipliers", d.layers);
  const int divisor = c.integer("ffn_dim_divisor", 1, 65536);
  const auto activation = activation_from(c, "activation_fn_name", "silu");
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto norm = rms_norms(d.hidden, eps);
  AttentionOptions attention{.rope = Rope::plain(d.head_dim, c.get("rope_freq_constant", 10000.0f)),
                             .qkv_bias = Bias::none,
                             .out_bias = Bias::none,
                             .fused = "qkv_proj",
                             .out = "out_proj"};
  if (c.get("normalize_qk_projections", true)) attention.qk_norm = {.eps = eps};
  const StandardOptions options{.tie = tie_if(c.get("share_input_output_layers", true))};
  return standard_decoder(w, d, norm, options, [&](int i, const Weights& layer) {
    const auto at = static_cast<size_t>(i);
    Dims own = d;
    own.heads = heads[at];
    own.kv_heads = kv[at];
    if (own.kv_heads < 1 || own.heads < 1 || own.heads > kMaxHeads || own.heads % own.kv_heads != 0)
      fail(ErrorKind::bad_checkpoint, "{}: layer {}: {} query heads over {} kv heads", c.where(), i,
           own.heads, own.kv_heads);
    const double wanted = static_cast<double>(widths[at]) * d.hidden;
    if (!(wanted > 0 && wanted < kMaxWidth))
      fail(ErrorKind::bad_checkpoint, "{}: ffn_multipliers: {} at layer {} is out of bounds", c.where(),
           widths[at], i);
    return PreNorm{.mixer_norm = norm(layer, "attn_norm"),
                   .mixer = Attention(layer / "attn", own, attention),
                   .ffn_norm = norm(layer, "ffn_norm"),
                   .ffn = GatedMlp(layer / "ffn", d.hidden, rounded_to(wanted, divisor), activation,
                                   Bias::none, {"gate_proj", "up_proj", "proj_2"})};
  });
}

}  // namespace

Arch arch_openelm() {
  return {
      .model_types = {"openelm"},
      .gguf = {"openelm"},
      .reference = "mlx-lm openelm",
      .build = build,
      .weights = {rename("transformer.token_embeddings.*", "model.embed_tokens.*"),
                  rename("transformer.*", "model.*"),
                  split("*.proj_1.weight", {"*.gate_proj.weight", "*.up_proj.weight"})},
      .tiny = R"({"model_type": "openelm", "vocab_size": 256, "model_dim": 64, "num_transformer_layers": 3,
              "head_dim": 32, "max_context_length": 512, "num_query_heads": [6, 4, 8], "num_kv_heads": [3, 2, 2],
              "ffn_multipliers": [1.0, 2.1, 2.9], "ffn_dim_divisor": 64, "activation_fn_name": "swish",
              "rms_norm_eps": 1e-6, "rope_freq_constant": 10000, "normalize_qk_projections": true,
              "ffn_with_glu": true, "share_input_output_layers": true})"};
}

}  // namespace mlxcel
