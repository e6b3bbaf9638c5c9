// A mixture of experts whose shared experts take part in the weights: routed and shared ones are weighed by
// their sigmoids' shares of one sum. Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> the
// same. Reference: transformers InklingMoE.
#pragma once

#include "nn/linear.h"
#include "nn/moe.h"
#include "nn/weights.h"

namespace mlxcel {

struct SinkMoeOptions {
  int hidden = 0;
  int width = 0;  // of each expert
  int experts = 0, shared = 0;
  int per_token = 0;
  float scale = 1.0f;
  Activation activation = Activation::silu;
};

/// Reads gate [experts + shared], gate.e_score_correction_bias, gate.global_scale, experts, shared_experts.
class SinkMoe {
 public:
  SinkMoe(const Weights& w, const SinkMoeOptions& options);
  array operator()(const array& x) const;

 private:
  SinkMoeOptions o_;
  Linear router_;
  array correction_, scale_;
  SparseMoe routed_, shared_;
};

}  // namespace mlxcel
