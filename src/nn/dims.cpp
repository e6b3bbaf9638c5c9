#include "nn/dims.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mlxcel {

Dims Dims::from(const Config& config) { return from(config, Dims{}); }

Dims Dims::from(const Config& config, const Dims& defaults) {
  const auto size = [&](const char* key, int high, int fallback) {
    return fallback > 0 ? config.integer(key, 1, high, fallback) : config.integer(key, 1, high);
  };
  Dims d;
  d.vocab = size("vocab_size", kMaxVocab, defaults.vocab);
  d.hidden = size("hidden_size", kMaxWidth, defaults.hidden);
  d.layers = size("num_hidden_layers", kMaxLayers, defaults.layers);
  d.heads = size("num_attention_heads", kMaxHeads, defaults.heads);
  // null means what follows from the other sizes; the family's own counts where the key is left out.
  const auto left_out = [&](const char* key, int usual) { return config.is_null(key) ? 0 : usual; };
  const int shared = left_out("num_key_value_heads", defaults.kv_heads);
  const int usual = left_out("head_dim", defaults.head_dim);
  d.kv_heads = size("num_key_value_heads", kMaxHeads, shared > 0 ? shared : d.heads);
  if (d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: num_attention_heads {}: expected a multiple of num_key_value_heads {}", config.where(), d.heads,
         d.kv_heads);
  if (!config.has("head_dim") && usual == 0 && d.hidden % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: hidden_size {}: expected a multiple of num_attention_heads {}",
         config.where(), d.hidden, d.heads);
  d.head_dim = config.integer("head_dim", 1, 8192, usual > 0 ? usual : std::max(d.hidden / d.heads, 1));
  d.max_positions = config.integer("max_position_embeddings", 0, kMaxPositions, defaults.max_positions);
  return d;
}

float factor(const Config& config, const char* key, float fallback) {
  const float value = config.get<float>(key, fallback);
  if (!(value > 0.0f) || !std::isfinite(value))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a positive number, found {}", config.where(), key,
         value);
  return value;
}

float epsilon(const Config& config, const char* key, float fallback) {
  const float value = config.get<float>(key, fallback);
  if (!(value > 0.0f && value < 1.0f))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a number between 0 and 1, found {}", config.where(),
         key, value);
  return value;
}

}  // namespace mlxcel
