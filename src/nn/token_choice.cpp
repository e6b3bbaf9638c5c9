#include "nn/token_choice.h"

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

TokenChoice::TokenChoice(const Weights& w, int hidden, int vocab, const MoeOptions& moe)
    : gate_(w.linear("gate", moe.experts, hidden, Bias::none)),
      table_(w.integers("gate.tid2eid", {vocab, moe.per_token}, moe.experts)),
      moe_(moe) {}

std::pair<array, array> TokenChoice::operator()(const array& x, const Step& step) const {
  const array logits = gate_(x);
  const array scores = moe_.scoring == Scoring::sigmoid ? kernels::activate(logits, Activation::sigmoid)
                       : moe_.scoring == Scoring::softmax
                           ? mx::softmax(logits, std::vector<int>{-1}, /*precise=*/true)
                           : mx::sqrt(kernels::activate(logits, Activation::softplus));
  const array chosen =
      mx::take(table_, fault("experts of tokens ignored") ? mx::zeros_like(step.tokens()) : step.tokens(), 0);
  const array own = mx::take_along_axis(scores, chosen, -1);
  const array sum = mx::add(mx::sum(own, -1, /*keepdims=*/true), array(moe_.renorm_eps));
  return {chosen, mx::multiply(mx::divide(own, sum), array(moe_.scale))};
}

}  // namespace mlxcel
