#include "nn/dims.h"

#include "base/error.h"

namespace mlxcel {

Dims Dims::from(const Config& config) {
  Dims d;
  d.vocab = config.integer("vocab_size", 1, kMaxVocab);
  d.hidden = config.integer("hidden_size", 1, kMaxWidth);
  d.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = config.integer("num_attention_heads", 1, 4096);
  d.kv_heads = config.integer("num_key_value_heads", 1, 4096, d.heads);
  if (d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: num_attention_heads {}: expected a multiple of num_key_value_heads {}", config.where(), d.heads,
         d.kv_heads);
  if (!config.has("head_dim") && d.hidden % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: hidden_size {}: expected a multiple of num_attention_heads {}",
         config.where(), d.hidden, d.heads);
  d.head_dim = config.integer("head_dim", 1, 8192, d.hidden / d.heads > 0 ? d.hidden / d.heads : 1);
  d.max_positions = config.integer("max_position_embeddings", 0, kMaxPositions, 0);
  return d;
}

float epsilon(const Config& config, const char* key, float fallback) {
  const float value = config.get<float>(key, fallback);
  if (!(value > 0.0f && value < 1.0f))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a number between 0 and 1, found {}", config.where(),
         key, value);
  return value;
}

}  // namespace mlxcel
