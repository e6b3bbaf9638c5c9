// Experts alone: which of them a token passes, and with what weight, is decided elsewhere.
// Owner: value. Thread: model thread. Shapes: x [tokens, width] -> [tokens, width].
#pragma once

#include "nn/linear.h"
#include "nn/weights.h"

namespace mlxcel {

struct ExpertBankOptions {
  int experts = 0;
  int hidden = 0;
  int width = 0;  // of each expert
  Activation activation = Activation::silu;
  bool gated = true;  // false: down(activation(up(x)))
};

/// Reads gate_proj (where gated), up_proj and down_proj, stacked.
class ExpertBank {
 public:
  ExpertBank(const Weights& w, const ExpertBankOptions& options);
  /// chosen [tokens, k] int32, weights [tokens, k]: the weighted sum of what they give.
  array operator()(const array& x, const array& chosen, const array& weights) const;

 private:
  ExpertBankOptions o_;
  GatedLinear gate_up_;
  Linear up_, down_;
};

}  // namespace mlxcel
