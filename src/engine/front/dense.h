// Dense layers behind the pooling of sentence-transformers folders (EmbeddingGemma has two). Plain memory.
// Thread: reading on the model thread, through() on any. Failure: bad_checkpoint naming file or tensor,
// unsupported for activations other than none and tanh.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mlxcel {

struct DenseLayer {
  int in = 0, out = 0;
  std::vector<float> weight;  // [out, in]
  std::vector<float> bias;    // [out], or empty
  bool tanh = false;
};

/// Those that modules.json names, in its order, each fitting the one before (the first: `hidden`).
std::vector<DenseLayer> read_dense_layers(const Checkpoint& checkpoint, int hidden);

/// activation(W x + b) of each layer in turn; sums in f64, in order.
std::vector<double> through(std::span<const DenseLayer> layers, std::vector<double> x);

}  // namespace mlxcel
