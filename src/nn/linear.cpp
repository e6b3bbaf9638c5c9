#include "nn/linear.h"

#include "base/error.h"
#include "checkpoint/config.h"
#include "kernels/elementwise.h"
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

namespace {

array gate_times_up(const array& both, Activation activation) {
  const auto halves = mx::split(both, 2, -1);
  return mx::multiply(kernels::activate(halves[0], activation), halves[1]);
}

}  // namespace

array Linear::operator()(const array& x, const Residual& residual) const {
  const auto plain = [&] {
    if (fault("residual dropped") && residual) return kernels::matmul(x, matrix, bias);
    if (fault("bias dropped")) return kernels::matmul(x, matrix, std::nullopt, residual);
    return kernels::matmul(x, matrix, bias, residual);
  };
  return adapted() ? site->added(plain(), x) : plain();
}

array Linear::gather(const array& x, const array& experts) const {
  const array y = kernels::gather_matmul(x, matrix, experts);
  return adapted() ? site->added(y, x, experts) : y;
}

array GatedLinear::operator()(const array& x, Activation activation) const {
  const array y = kernels::gated_matmul(x, matrix, activation, gate_bias, up_bias);
  if (!adapted()) return y;
  const auto open = [&](const array& some, const std::optional<array>&) {
    const array both = kernels::gate_and_up(some, matrix);
    if (!gate_bias && !up_bias) return both;
    const array none = mx::zeros({out}, mx::float32);
    return mx::add(both, mx::concatenate({gate_bias ? *gate_bias : none, up_bias ? *up_bias : none}, 0));
  };
  return site->joined(y, x, std::nullopt, open,
                      [&](const array& both) { return gate_times_up(both, activation); });
}

array GatedLinear::gather(const array& x, const array& experts, Activation activation) const {
  const array y = kernels::gather_gated_matmul(x, matrix, experts, activation);
  if (!adapted()) return y;
  const auto open = [&](const array& some, const std::optional<array>& chosen) {
    return kernels::gate_and_up(some, matrix, chosen);
  };
  return site->joined(y, x, experts, open,
                      [&](const array& both) { return gate_times_up(both, activation); });
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
  if (adapted()) x = site->looked_up(x, step.tokens());
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
