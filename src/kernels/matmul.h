// The native product: jobs of token rows against packed experts, shared out over the worker pool.
// Internal to this room. Thread: MLX's stream thread, or any other outside a pool region.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/isa/rowwise.h"
#include "kernels/matrix.h"
#include "kernels/phases.h"
#include "kernels/scratch.h"

namespace mlxcel::kernels {

/// Panel rows [first, first + count) against one expert (0 for a plain matrix).
struct Job {
  int expert, first, count;
};

/// RMS or layer norm of a row.
struct RowNorm {
  bool layer = false;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer
  float eps = 0.0f;
  float offset = 0.0f;  // RMS: added to the weight
};
/// Rows that lie elsewhere, or that are put together when they are asked for. Asked by several workers at
/// once.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Row `index`, of the matrix's columns: where it lies, or in `room` after it was written there.
  virtual const float* row(int index, float* room) const = 0;
};
struct Product {
  const Matrix::Storage* weights = nullptr;
  Precision precision = Precision::high;
  const float* x = nullptr;
  ptrdiff_t x_stride = 0;           // between rows of x; 0: the matrix's columns
  const RowSource* made = nullptr;  // in place of x, sources and norm
  const RowNorm* norm = nullptr;    // of x's rows before they are multiplied
  const int* sources = nullptr;     // row of x for each panel row; none: the same
  const int* targets = nullptr;     // row of out for each panel row; none: the same
  float* out = nullptr;
  int out_columns = 0;
  const float* bias = nullptr;
  const float* up_bias = nullptr;
  const float* residual = nullptr;
  Activation activation = Activation::none;  // of the gate half, if the segment is gated
};

void run_product(const Product& product, std::span<const Job> jobs);

/// Products as phases of a longer program. What their pointers name must live until the phases have run.
class Products {
 public:
  Products();
  ~Products();
  void clear() { used_ = 0; }
  void add(const Product& product, std::span<const Job> jobs, std::vector<Phase>& phases);
  /// After the last add(), before the phases run: panels, which the products share.
  void bind();

 private:
  static constexpr int kPanels = 4;
  class Plan;
  std::vector<std::unique_ptr<Plan>> plans_;
  size_t used_ = 0;
  std::vector<Job> batch_;
  Scratch panels_[kPanels];
};

}  // namespace mlxcel::kernels
