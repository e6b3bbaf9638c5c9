#include "nn/expert_bank.h"

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

ExpertBank::ExpertBank(const Weights& w, const ExpertBankOptions& options) : o_(options) {
  if (o_.gated)
    gate_up_ = w.gated_bank("gate_proj", "up_proj", o_.experts, o_.width, o_.hidden);
  else
    up_ = w.bank("up_proj", o_.experts, o_.width, o_.hidden);
  down_ = w.bank("down_proj", o_.experts, o_.hidden, o_.width);
}

array ExpertBank::operator()(const array& x, const array& chosen, const array& weights) const {
  const array inner = o_.gated ? gate_up_.gather(x, chosen, o_.activation)
                               : kernels::activate(up_.gather(x, chosen), o_.activation);
  const array outer = down_.gather(inner, chosen);
  return mx::sum(mx::multiply(outer, mx::expand_dims(weights, -1)), 1);
}

}  // namespace mlxcel
