// A stretch of a forward pass as one node of MLX's graph: operations on rows of f32 values, run as phases of
// one pool region. Each operation gives the bits of its function in matrix.h, elementwise.h and attention.h,
// which are the program's twin. CPU, native kernels only.
// Owner: a step; weights, pages and tables are kept alive by the node. Thread: built on the model thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/matmul.h"
#include "kernels/matrix.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

/// RMS or layer norm with its evaluated f32 weights.
struct NormForm {
  bool layer = false;
  std::optional<array> weight, bias;
  float eps = 0.0f, offset = 0.0f;
};

class Program {
 public:
  /// Values of the program, [rows, width] f32.
  using Slot = int;
  static constexpr Slot kNone = -1;

  struct ProductForm {
    std::optional<NormForm> norm = {};  // of x first
    std::optional<array> bias = {}, up_bias = {};
    Slot residual = kNone;
    Activation activation = Activation::none;  // of the gate half where the matrix is gated
    std::vector<int> rows = {};                // of x; empty: all
  };
  struct HeadsForm {
    std::optional<NormForm> q_norm = {}, k_norm = {};
    Slot angles = kNone;
    bool interleaved = false;
    Slot factors = kNone;  // [rows, 1]: of the queries, last
  };
  /// What columns [from, from + heads * width) of a value go through, in this order.
  struct ColumnsForm {
    int from = 0, heads = 1, width = 0;
    float clip = 0.0f;                  // 0: none; else kept within ±clip
    std::optional<NormForm> norm = {};  // over each head
    std::optional<array> weights = {};  // [heads, width], times the norm
  };

  /// Whether an array can be a constant of a program: evaluated, f32, in one piece.
  static bool is_constant(const std::optional<array>& a);
  /// Whether a matrix can be multiplied by.
  static bool takes(const Matrix& matrix);

  /// Values from outside, [rows, width] f32.
  Slot input(const array& x);
  /// Rows of a table times `scale`; ids [rows] int32, checked by the caller.
  Slot lookup(const Matrix& table, const array& ids, float scale);
  /// Cosines, then sines, of position * frequency, times `scale`: positions [rows] int32 -> [rows, 2 * half].
  Slot angles(const array& positions, const array& frequencies, float scale);
  Slot product(Slot x, const Matrix& matrix, ProductForm form);
  /// qkv [rows, (heads + 2 kv_heads) * head_dim], turned in place; appended to the pages, attended.
  Slot attention(Slot qkv, const HeadsForm& heads, const std::optional<array>& sinks, const PagePool& pool,
                 std::shared_ptr<const AttentionRows> rows, const AttentionForm& form);
  /// a + scale * norm(b); without `a` the norm alone.
  Slot add(Slot a, Slot b, std::optional<NormForm> norm, float scale = 1.0f);
  /// Columns of a value that is no input, in place.
  void columns(Slot x, ColumnsForm form);
  /// a times b, entry by entry; or b has one value for each of its width's equal parts of a.
  Slot multiply(Slot a, Slot b);

  int width(Slot slot) const { return slots_[static_cast<size_t>(slot)].width; }
  int rows(Slot slot) const { return slots_[static_cast<size_t>(slot)].rows; }

  /// Operations so far, and back to so many.
  struct Mark {
    size_t ops, slots;
  };
  Mark mark() const { return {ops_.size(), slots_.size()}; }
  void back_to(const Mark& mark);

  /// The program as a node whose value is `slot`; an input is returned as it came.
  static array output(std::shared_ptr<Program> program, Slot slot);

 private:
  struct Norm {
    explicit Norm(const NormForm& form);
    NormForm form;
    RowNorm row;  // into form's arrays
  };
  struct Lookup {
    std::shared_ptr<const Matrix::Storage> table;
    int ids;  // input
    float scale;
    Slot out;
  };
  struct Angles {
    int positions;  // input
    array frequencies;
    float scale;
    Slot out;
  };
  struct Multiply {
    std::shared_ptr<const Matrix::Storage> weights;
    Precision precision;
    Slot x;
    ProductForm form;
    std::optional<Norm> norm;
    Slot out;
  };
  struct Attend {
    Slot qkv;
    HeadsForm heads;
    std::optional<Norm> q_norm, k_norm;
    std::optional<array> sinks;
    PagePool pool;
    std::shared_ptr<const AttentionRows> rows;
    AttentionForm form;
    Slot out;
  };
  struct Add {
    Slot a, b;
    std::optional<Norm> norm;
    float scale;
    Slot out;
  };
  struct Columns {
    Slot x;
    ColumnsForm form;
    std::optional<Norm> norm;
    Slot out = kNone;  // in place
  };
  struct Times {
    Slot a, b;
    Slot out;
  };
  using Op = std::variant<Lookup, Angles, Multiply, Attend, Add, Columns, Times>;
  struct Values {
    int rows, width;
    int input = -1;  // number of the node's input that holds them
  };
  class Run;

  Slot make(int rows, int width, int input = -1);
  int node_input(const array& x);
  template <class Visit>
  static void each_read(const Op& op, const Visit& visit);
  static Slot out_of(const Op& op);
  /// Where each slot lies in the scratch memory, in floats; the last use decides.
  void place();
  long long multiply_adds() const;

  std::vector<Op> ops_;
  std::vector<Values> slots_;
  std::vector<array> inputs_;
  Slot result_ = kNone;
  std::vector<ptrdiff_t> offsets_;  // of slots; -1: an input, the output, or never made
  size_t scratch_floats_ = 0;
};

}  // namespace mlxcel::kernels
