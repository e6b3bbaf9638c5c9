// Gated units whose halves are kept within limits. Values. Thread: model thread.
#pragma once

#include "nn/linear.h"
#include "tensor/tensor.h"

namespace mlxcel {

/// gate' * sigmoid(alpha gate') * (up' + offset): gate' = min(gate, limit), up' = up within ±limit.
/// alpha 1 and offset 0 make it silu(gate') * up'. `after` bounds silu(gate) in place of gate (Step 3.5).
struct ClampedGlu {
  float limit = 7.0f;
  float alpha = 1.0f;
  float offset = 0.0f;
  bool after = false;
  /// Not 0: bent in place of cut, both halves: beta tanh(gate / beta) sigmoid(gate) * up_bend tanh(up /
  /// up_bend) (SiTU; up_bend 0: up as it is).
  float bend = 0.0f;
  float up_bend = 0.0f;
  array operator()(const array& gate, const array& up) const;
  /// [..., 2 width]: gate, then up.
  array halves(const array& both) const;
};

}  // namespace mlxcel
