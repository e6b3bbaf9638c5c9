// The native product: jobs of token rows against packed experts, shared out over the worker pool.
// Internal to this room. Thread: MLX's stream thread, or any other outside a pool region.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/matrix.h"

namespace mlxcel::kernels {

/// Panel rows [first, first + count) against one expert (0 for a plain matrix).
struct Job {
  int expert, first, count;
};

struct Product {
  const Matrix::Storage* weights = nullptr;
  Precision precision = Precision::high;
  const float* x = nullptr;
  ptrdiff_t x_stride = 0;        // between rows of x; 0: the matrix's columns
  const int* sources = nullptr;  // row of x for each panel row; none: the same
  const int* targets = nullptr;  // row of out for each panel row; none: the same
  float* out = nullptr;
  int out_columns = 0;
  const float* bias = nullptr;
  const float* up_bias = nullptr;
  const float* residual = nullptr;
  Activation activation = Activation::none;  // of the gate half, if the segment is gated
};

void run_product(const Product& product, const std::vector<Job>& jobs);

}  // namespace mlxcel::kernels
