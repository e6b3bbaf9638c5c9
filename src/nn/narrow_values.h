// Attention whose values have a width of their own and are scaled. Owner: value. Thread: model thread.
// Shapes: x [tokens, hidden] -> [tokens, hidden]. Reference: transformers MiMoV2FlashAttention.
#pragma once

#include <optional>

#include "nn/linear.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct NarrowValuesOptions {
  int hidden = 0;
  int heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  Rope rope;
  int window = 0;  // 0: all
  bool sinks = false;
  float value_scale = 1.0f;
  Bias bias = Bias::as_stored;  // of q, k and v
};

class NarrowValues {
 public:
  /// Reads q_proj, k_proj, v_proj, o_proj, and sinks where there are some.
  NarrowValues(const Weights& w, const NarrowValuesOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual) const;

 private:
  NarrowValuesOptions o_;
  Linear qkv_, out_;
  std::optional<array> sinks_;
  int slot_;
};

}  // namespace mlxcel
