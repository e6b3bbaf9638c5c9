// The sizes most decoders share, read and checked once. Owner: value. Failure: bad_checkpoint naming keys.
#pragma once

#include "checkpoint/config.h"

namespace mlxcel {

struct Dims {
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int max_positions = 0;  // 0: the config names none

  /// hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads (default: heads), head_dim
  /// (default: hidden / heads), vocab_size, max_position_embeddings. What stands in `defaults` (0: nothing)
  /// is the family's for a config that leaves the key out.
  static Dims from(const Config& config);
  static Dims from(const Config& config, const Dims& defaults);
};

inline constexpr int kMaxVocab = 1 << 22;
inline constexpr int kMaxWidth = 1 << 20;
inline constexpr int kMaxHeads = 4096;
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxPositions = 1 << 30;

/// A multiplier under `key`: positive and finite.
float factor(const Config& config, const char* key, float fallback = 1.0f);

/// A positive epsilon under `key`.
float epsilon(const Config& config, const char* key, float fallback);

}  // namespace mlxcel
