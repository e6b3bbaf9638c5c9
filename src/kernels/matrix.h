// A matrix multiplication's right-hand side, stored once in the form that the device's kernel reads:
// on CPU packed row blocks for the instruction set in use (the file's planes are let go), under
// MLXCEL_KERNELS=reference and on GPUs MLX's own planes.
// Owner: shared, immutable after construction. Thread: construction is memory work for any thread;
// the functions below build graph and belong to the model thread.
// Promise: a row of the result does not depend on how many rows stand beside it, bit for bit (CPU native).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace mlxcel::kernels {

/// high: activations as 16-bit integers per group (default). fast: 8-bit. exact: f32.
enum class Precision { high, fast, exact };
Precision precision();                // MLXCEL_CPU_PRECISION, read once
void set_precision(Precision value);  // for --cpu-precision and tests; before a model is loaded
Precision parse_precision(const std::string& text);
using mlxcel::to_string;  // of shapes and modes, beside ours
const char* to_string(Precision value);
/// The instruction set whose bodies run ("avx2", "avx512", "generic"); MLXCEL_CPU_ISA forces one.
const char* isa_name();

enum class Activation { none, silu, gelu, gelu_tanh, relu, relu2, sigmoid, tanh, softplus, exp };

class Matrix {
 public:
  /// One or more weights of equal input width, their outputs one after another (q, k, v). Formats may
  /// differ. 2-D [out, in] weights only; 3-D [experts, out, in] makes a bank for gather_matmul.
  static Matrix concatenated(std::span<const Weight> weights);
  /// A gate and an up projection of equal shape, laid out for gated_matmul.
  static Matrix gated(const Weight& gate, const Weight& up);

  int rows() const;       // output width (per expert in a bank)
  int columns() const;    // input width
  int experts() const;    // 0: not a bank
  size_t bytes() const;   // memory held
  bool is_gated() const;  // made by gated(), with both halves in one table
  /// The same memory read as a plain matrix, for products without an activation (see gate_and_up).
  Matrix as_plain() const;
  /// The weights back, equal in value to those given (the oracle of tests; `quantize` and export).
  std::vector<Weight> unpack() const;

  struct Storage;
  Matrix() = default;
  explicit Matrix(std::shared_ptr<const Storage> storage) : storage_(std::move(storage)) {}
  const std::shared_ptr<const Storage>& storage() const { return storage_; }

 private:
  std::shared_ptr<const Storage> storage_;
};

/// x [tokens, columns] f32 -> [tokens, rows] f32, plus bias [rows] and residual [tokens, rows] where given.
array matmul(const array& x, const Matrix& w, const std::optional<array>& bias = std::nullopt,
             const std::optional<array>& residual = std::nullopt);

/// activation(x gate^T) * (x up^T): x [tokens, columns] -> [tokens, rows / 2]. Biases [rows/2] each.
array gated_matmul(const array& x, const Matrix& gate_up, Activation activation,
                   const std::optional<array>& gate_bias = std::nullopt,
                   const std::optional<array>& up_bias = std::nullopt);

/// The two products before the activation, one after the other: [tokens, rows], of a bank [tokens, k, rows].
/// No promise on their bits beside gated_matmul's.
array gate_and_up(const array& x, const Matrix& gate_up, const std::optional<array>& experts = std::nullopt);

/// Rows by their own experts. x [tokens, columns] or [tokens, k, columns], experts [tokens, k] int32
/// -> [tokens, k, rows].
array gather_matmul(const array& x, const Matrix& bank, const array& experts);
/// The same for a gated bank: [tokens, columns] -> [tokens, k, rows / 2].
array gather_gated_matmul(const array& x, const Matrix& bank, const array& experts, Activation activation);

/// Rows of a table (an embedding): ids [tokens] int32 -> [tokens, columns] f32. An id outside the table
/// is the caller's error and is checked before the graph is built.
array take_rows(const Matrix& table, const array& ids);

}  // namespace mlxcel::kernels
