#include "nn/linear.h"

#include "base/error.h"
#include "checkpoint/config.h"
#include "nn/fault.h"

namespace mlxcel {

Activation activation_from(const std::string& name, std::string_view key) {
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_tanh" || name == "gelu_fast")
    return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  if (name == "relu2") return Activation::relu2;
  fail(ErrorKind::unsupported,
       "{}: activation \"{}\" is not supported: expected silu, gelu, gelu_new, gelu_pytorch_tanh, relu or "
       "relu2",
       key, name);
}

Activation activation_from(const Config& config, const char* key, const char* fallback) {
  return activation_from(config.get<std::string>(key, fallback), fmt::format("{}: {}", config.where(), key));
}

array Linear::operator()(const array& x, const Residual& residual) const {
  if (fault("residual dropped") && residual) return kernels::matmul(x, matrix, bias);
  if (fault("bias dropped")) return kernels::matmul(x, matrix, std::nullopt, residual);
  return kernels::matmul(x, matrix, bias, residual);
}

array GatedLinear::operator()(const array& x, Activation activation) const {
  return kernels::gated_matmul(x, matrix, activation, gate_bias, up_bias);
}

void Embedding::check_tokens(const Step& step) const {
  for (const int32_t id : step.token_ids())
    if (id < 0 || id >= rows)
      fail(ErrorKind::invalid_request, "token id {}: expected 0 to {} (the model's vocabulary)", id,
           rows - 1);
}

array Embedding::operator()(const Step& step) const {
  check_tokens(step);
  array x = kernels::take_rows(table, step.tokens());
  return scale == 1.0f || fault("embedding scale dropped") ? x : mx::multiply(x, array(scale));
}

void Embedding::check_positions(const Step& step) const {
  for (const StepRow& row : step.rows())
    if (row.position + row.count > rows)
      fail(ErrorKind::invalid_request, "position {}: the model has learned positions 0 to {}",
           row.position + row.count - 1, rows - 1);
}

array Embedding::at_positions(const Step& step) const {
  check_positions(step);
  if (fault("learned positions shifted"))
    return kernels::take_rows(table, mx::minimum(mx::add(step.positions(), array(1)), array(rows - 1)));
  return kernels::take_rows(table, step.positions());
}

array Embedding::row(int index) const { return kernels::take_rows(table, array({index}, mx::int32)); }

}  // namespace mlxcel
