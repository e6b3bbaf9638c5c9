// Experts inside a program: which rows meet which of them is known only when the choice has run. Plain
// memory, for work of a program's own (program_work.h); matrix.h and route.h have the same as nodes, which
// are the twin. Owner: whoever says the work. Thread: see each; nothing here throws once it is built.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/route.h"

namespace mlxcel::kernels {

/// One token's choice, as route() makes it: chosen and weights [form.per_token].
void route_row(const RouteForm& form, const float* logits, int experts, const float* correction, int* chosen,
               float* weights);
/// One token of weighted_sum(): y [k, width].
void weighted_row(const float* y, const float* weights, int k, ptrdiff_t width, float* out);

/// Rows by the experts that they go to: a job for each expert that anyone chose, its rows in their order.
struct ExpertDeal {
  std::vector<Job> jobs;
  std::vector<int> choices;  // of each panel row: which entry of `chosen` it is
  std::vector<int> tokens;   // and its token

  /// chosen [count], `per_token` of each token one after another, each one of `experts`.
  void deal(const int* chosen, int count, int per_token, int experts);

 private:
  std::vector<int> begin_;
};

/// A product whose jobs are known only when an earlier phase has run. How many pieces it has is fixed before:
/// each takes its share of what there turns out to be.
class LateProduct {
 public:
  static constexpr int kMost = 1024;

  /// `rows` panel rows, at most kMost; `one_source`: all are of the same row of x. The activation is that
  /// of a plain bank's outputs, or of the gate half.
  LateProduct(std::shared_ptr<const Matrix::Storage> weights, Activation activation, int rows,
              bool one_source);
  ~LateProduct();
  LateProduct(const LateProduct&) = delete;
  LateProduct& operator=(const LateProduct&) = delete;

  int pieces() const { return pieces_; }
  int columns() const;  // of the output
  /// Floats that prepare() fills; 0: there is nothing to prepare.
  size_t panel_floats() const { return panel_floats_; }
  long long multiply_adds() const;

  /// By one task of an earlier phase. Panel row i is row sources[i] of x, whose rows are `stride` floats
  /// apart; it goes to row deal.choices[i] of out. What is named must stay until the pieces have run.
  void set(const float* x, ptrdiff_t stride, const ExpertDeal& deal, const std::vector<int>& sources,
           float* out, float* panel);
  /// Pieces [0, pieces()), each once, in any order and side by side; all of prepare() before multiply().
  void prepare(int piece);
  void multiply(int piece);

 private:
  static constexpr int kKinds = 4;
  class Plan;
  std::shared_ptr<const Matrix::Storage> weights_;
  Precision precision_;
  Activation activation_;
  int rows_, pieces_;
  size_t panel_floats_ = 0, panel_at_[kKinds] = {};  // of each kind
  std::unique_ptr<Plan> plan_;
};

}  // namespace mlxcel::kernels
