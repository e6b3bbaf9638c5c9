#include "nn/glu.h"

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

array ClampedGlu::operator()(const array& gate, const array& up) const {
  if (fault("clamp left out")) return mx::multiply(kernels::activate(gate, Activation::silu), up);
  const auto bent = [](const array& x, float by) {
    return mx::multiply(kernels::activate(mx::multiply(x, array(1.0f / by)), Activation::tanh), array(by));
  };
  if (bend > 0.0f) {
    const array opened = mx::multiply(bent(gate, bend), kernels::activate(gate, Activation::sigmoid));
    return mx::multiply(opened, up_bend > 0.0f ? bent(up, up_bend) : up);
  }
  const array top(limit);
  const array bounded = mx::minimum(mx::maximum(up, array(-limit)), top);
  const array other = offset == 0.0f ? bounded : mx::add(bounded, array(offset));
  if (after) return mx::multiply(mx::minimum(kernels::activate(gate, Activation::silu), top), other);
  const array low = mx::minimum(gate, top);
  if (alpha == 1.0f) return mx::multiply(kernels::activate(low, Activation::silu), other);
  const array opened = kernels::activate(mx::multiply(low, array(alpha)), Activation::sigmoid);
  return mx::multiply(mx::multiply(low, opened), other);
}

array ClampedGlu::halves(const array& both) const {
  const auto parts = mx::split(both, 2, -1);
  return (*this)(parts[0], parts[1]);
}

}  // namespace mlxcel
