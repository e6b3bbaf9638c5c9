// Matrix products and tables: the parts that own packed weights. Built by Weights; values that share storage.
// Thread: model thread. Shapes: x [tokens, in] -> [tokens, out].
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/matrix.h"
#include "nn/adapter.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

class Config;

using kernels::Activation;
using Residual = std::optional<array>;

/// "silu", "gelu", "gelu_pytorch_tanh", … as configs spell it; unsupported for others, naming the key.
Activation activation_from(const std::string& name, std::string_view key = "hidden_act");
/// The same, read from the config.
Activation activation_from(const Config& config, const char* key, const char* fallback);

struct Linear {
  kernels::Matrix matrix;
  std::optional<array> bias;
  int out = 0;
  int in = 0;
  std::shared_ptr<const AdapterSite> site = {};

  /// x W^T + bias (+ residual)
  array operator()(const array& x, const Residual& residual = std::nullopt) const;
  /// Of a bank: rows by their own experts, x [rows, in] or [rows, k, in], experts [rows, k] -> [rows, k,
  /// out], without the bias.
  array gather(const array& x, const array& experts) const;
  bool adapted() const { return site && site->active(); }
};

/// activation(gate(x)) * up(x), one pass over x.
struct GatedLinear {
  kernels::Matrix matrix;
  std::optional<array> gate_bias, up_bias;
  int out = 0;  // of each half
  int in = 0;
  std::shared_ptr<const AdapterSite> site = {};

  array operator()(const array& x, Activation activation) const;
  array gather(const array& x, const array& experts, Activation activation) const;
  bool adapted() const { return site && site->active(); }
};

struct Embedding {
  kernels::Matrix table;
  int rows = 0;
  int width = 0;
  float scale = 1.0f;
  std::shared_ptr<const AdapterSite> site = {};

  /// The rows of the step's tokens, [tokens, width]; invalid_request for an id outside the table.
  array operator()(const Step& step) const;
  /// The rows at each token's position (learned positions); invalid_request beyond the table.
  array at_positions(const Step& step) const;
  array row(int index) const;  // [1, width]
  /// invalid_request for an id, or a position, outside the table.
  void check_tokens(const Step& step) const;
  void check_positions(const Step& step) const;
  bool adapted() const { return site && site->active(); }
  /// The same storage as an output matrix (tied head).
  Linear as_linear() const { return {table, std::nullopt, rows, width, {}}; }
};

}  // namespace mlxcel
