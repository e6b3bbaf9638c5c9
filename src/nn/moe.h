// Sparse mixture of experts: each token picks its experts; their weighted outputs are summed per token.
// Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden].
// Reference: transformers Qwen3MoeSparseMoeBlock.
#pragma once

#include <string>

#include "nn/linear.h"
#include "nn/weights.h"

namespace mlxcel {

struct MoeOptions {
  int experts = 0;
  int per_token = 0;
  int width = 0;             // of each expert
  bool renormalize = false;  // the chosen weights sum to one
  Activation activation = Activation::silu;
  std::string router = "gate";
  std::string bank = "experts";  // stacked: "<bank>.gate_proj.weight" [experts, width, hidden], …
};

class SparseMoe {
 public:
  SparseMoe(const Weights& w, int hidden, const MoeOptions& options);
  array operator()(const array& x, const Residual& residual = std::nullopt) const;

 private:
  Linear router_, down_;
  GatedLinear gate_up_;
  int per_token_;
  bool renormalize_;
  Activation activation_;
};

}  // namespace mlxcel
