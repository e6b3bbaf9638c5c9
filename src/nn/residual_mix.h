// In place of a plain residual: what blocks of layers gave before, and the running sum, weighed by a learned
// softmax over them. Owner: value. Thread: model thread. Shapes: [tokens, hidden]. Reference: mlx-lm kimi_k3.
#pragma once

#include <string>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/weights.h"
#include "tensor/tensor.h"

namespace mlxcel {

class ResidualMix {
 public:
  /// Reads "<name>_norm" and "<name>_proj", or their product "<name>_score", as GGUF files hold it.
  ResidualMix(const Weights& w, const std::string& name, int hidden, float eps);
  /// The sum alone where there are no blocks yet.
  array operator()(const std::vector<array>& blocks, const array& sum) const;

 private:
  RmsNorm norm_;
  Linear proj_;
};

}  // namespace mlxcel
