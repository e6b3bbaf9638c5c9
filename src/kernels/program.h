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
#include "kernels/program_work.h"
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

  /// Heads of a value and where they go: a head's first value stands at `from`, the next one's `each`
  /// further.
  struct TurnForm {
    int heads = 1, width = 0;
    int from = 0, each = 0, to_from = 0, to_each = 0;
    Slot angles = kNone;  // none: they are not rotated
    bool interleaved = false;
  };

  /// Whether an array can be a constant of a program: evaluated, f32, in one piece.
  static bool is_constant(const std::optional<array>& a);
  /// Whether a matrix can be multiplied by.
  static bool takes(const Matrix& matrix);
  static bool takes_bank(const Matrix& matrix);

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
  /// a times activation(b), entry by entry; or b has one value for each of its width's equal parts of a.
  Slot multiply(Slot a, Slot b, Activation activation = Activation::none);

  /// Columns [from, from + width) of a value, where they lie.
  Slot part(Slot x, int from, int width);
  /// Each head of a value times its own matrix of a bank; `out_each` values from head to head of the result.
  Slot by_heads(Slot x, const Matrix& bank, int out_each);
  /// Heads of x, rotated, written into `to`, which may be x.
  void turn(Slot x, Slot to, TurnForm form);
  /// Queries q against keys k that hold their values, appended to the pages.
  Slot latent_attention(Slot q, Slot k, const PagePool& pool, std::shared_ptr<const AttentionRows> rows,
                        const AttentionForm& form);

  /// The slots that it makes. What it gives comes after the node's value, in the order of calls.
  std::vector<Slot> work(WorkForm form);
  /// Arrays that the node takes and gives so far: Buffers::kMost at most of each.
  size_t arrays() const { return inputs_.size() + gives_.size(); }

  int width(Slot slot) const { return values(slot).width; }
  int rows(Slot slot) const { return values(slot).rows; }

  /// Operations so far, and back to so many.
  struct Mark {
    size_t ops, slots, gives;
  };
  Mark mark() const { return {ops_.size(), slots_.size(), gives_.size()}; }
  void back_to(const Mark& mark);

  /// The program as a node whose value is `slot`, then what its work gives; an input is returned as it came.
  static std::vector<array> output(std::shared_ptr<Program> program, Slot slot);

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
    Activation activation;
    Slot out;
  };
  struct Work {
    WorkForm form;
    std::vector<int> arrays;  // inputs
    size_t gives;             // the first one's number
    std::vector<Slot> made;
    Slot out = kNone;  // see made
  };
  struct HeadMultiply {
    std::shared_ptr<const Matrix::Storage> weights;
    Precision precision;
    Slot x;
    Slot out;
  };
  struct TurnHeads {
    Slot x;
    TurnForm form;
    Slot to;
    Slot out = kNone;  // in place
  };
  struct AttendLatent {
    Slot q, k;
    PagePool pool;
    std::shared_ptr<const AttentionRows> rows;
    AttentionForm form;
    Slot out;
  };
  using Op = std::variant<Lookup, Angles, Multiply, Attend, Add, Columns, Times, HeadMultiply, TurnHeads,
                          AttendLatent, Work>;
  struct Values {
    int rows = 0, width = 0;
    int input = -1;   // number of the node's input that holds them
    Slot of = kNone;  // part of a value, from this column on
    int from = 0;
  };
  class Run;

  const Values& values(Slot slot) const { return slots_[static_cast<size_t>(slot)]; }
  int stride(Slot slot) const { return width(values(slot).of == kNone ? slot : values(slot).of); }
  void expect_own(Slot x, const char* what) const;

  template <class O>
  void say(O op);
  Slot make(int rows, int width, int input = -1);
  int node_input(const array& x);
  template <class Visit>
  static void each_read(const Op& op, const Visit& visit);
  template <class Visit>
  static void each_made(const Op& op, const Visit& visit);
  /// Where each slot lies in the scratch memory, in floats; the last use decides.
  void place();
  long long multiply_adds() const;

  std::vector<Op> ops_;
  std::vector<Values> slots_;
  std::vector<array> inputs_;
  std::vector<Shape> gives_;
  Slot result_ = kNone;
  std::vector<ptrdiff_t> offsets_;  // of slots; -1: an input, the output, or never made
  size_t scratch_floats_ = 0;
};

}  // namespace mlxcel::kernels
