// Attention whose output passes a gate: the query projection gives each head's query and, behind it, its
// gate. Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden]. Reference:
// transformers Qwen3NextAttention.
#pragma once

#include "nn/dims.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct GatedAttentionOptions {
  Rope rope;
  float eps = 1e-6f;            // of the norms over each head of q and k
  Bias bias = Bias::as_stored;  // of all four projections
};

class GatedAttention {
 public:
  GatedAttention(const Weights& w, const Dims& dims, const GatedAttentionOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;

 private:
  Dims d_;
  Linear qkv_, out_;
  RmsNorm q_norm_, k_norm_;
  Rope rope_;
  int slot_;
};

}  // namespace mlxcel
