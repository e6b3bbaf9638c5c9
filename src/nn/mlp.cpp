#include "nn/mlp.h"

#include "checkpoint/config.h"
#include "kernels/elementwise.h"
#include "nn/dims.h"
#include "nn/fault.h"
#include "nn/glu_rows.h"
#include "nn/recurrent_phases.h"

namespace mlxcel {

namespace {

Activation in_force(Activation activation) {
  if (!fault("activation of another kind")) return activation;
  switch (activation) {
    case Activation::gelu:
      return Activation::gelu_tanh;
    case Activation::gelu_tanh:
      return Activation::silu;
    default:
      return Activation::gelu;
  }
}

}  // namespace

GatedMlp::GatedMlp(const Weights& w, int hidden, int width, Activation activation, Bias bias,
                   const GatedMlpNames& names, const std::optional<ClampedGlu>& clamp)
    : activation_(in_force(activation)), clamp_(clamp) {
  if (clamp)
    both_ = w.fused({names.gate, names.up}, {width, width}, hidden, bias);
  else
    gate_up_ = w.gated(names.gate, names.up, width, hidden, bias);
  down_ = w.linear(names.down, hidden, width, bias);
}

GatedMlp GatedMlp::from(const Config& config, const Weights& w, int hidden, Bias bias) {
  return GatedMlp(w, hidden, config.integer("intermediate_size", 1, kMaxWidth),
                  activation_from(config, "hidden_act", "silu"), bias);
}

array GatedMlp::operator()(const array& x, const Residual& residual) const {
  if (clamp_) return down_(clamp_->halves(both_(x)), residual);
  return down_(gate_up_(x, activation_), residual);
}

bool GatedMlp::phases(PhaseList& list) const {
  const auto residual = list.residual();
  if (clamp_) {
    if (!list.linear(both_)) return false;
    list.set_value(token_phase(list, {list.value()}, {down_.in},
                               [clamp = *clamp_, width = down_.in](const kernels::WorkView& v, ptrdiff_t t) {
                                 const float* const both = v.read[0] + t * v.stride[0];
                                 clamped_row(clamp, both, both + width, width, v.made[0] + t * width);
                               })[0]);
    return list.linear(down_, residual);
  }
  return list.gated(gate_up_, activation_) && list.linear(down_, residual);
}

Mlp::Mlp(const Weights& w, const std::string& in, const std::string& out, int hidden, int width,
         Activation activation, Bias bias)
    : in_(w.linear(in, width, hidden, bias)),
      out_(w.linear(out, hidden, width, bias)),
      activation_(in_force(activation)) {}

array Mlp::operator()(const array& x, const Residual& residual) const {
  return out_(kernels::activate(in_(x), activation_), residual);
}

bool Mlp::phases(PhaseList& list) const {
  const auto residual = list.residual();
  return list.linear(in_, PhaseList::kNone, activation_) && list.linear(out_, residual);
}

}  // namespace mlxcel
