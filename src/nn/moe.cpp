#include "nn/moe.h"

#include "nn/fault.h"

namespace mlxcel {

SparseMoe::SparseMoe(const Weights& w, int hidden, const MoeOptions& options)
    : router_(w.linear(options.router, options.experts, hidden)),
      down_((w / options.bank).bank("down_proj", options.experts, hidden, options.width)),
      gate_up_((w / options.bank).gated_bank("gate_proj", "up_proj", options.experts, options.width, hidden)),
      per_token_(options.per_token),
      renormalize_(options.renormalize),
      activation_(options.activation) {}

array SparseMoe::operator()(const array& x, const Residual& residual) const {
  // Along each token's own axis only: nothing here depends on the tokens beside it.
  const array scores = mx::softmax(router_(x), std::vector<int>{-1}, /*precise=*/true);
  const int tokens = scores.shape(0);
  const array order = mx::argsort(mx::negative(scores), -1);
  const array chosen = mx::astype(mx::slice(order, {0, 0}, {tokens, per_token_}), mx::int32);
  array weights = mx::take_along_axis(scores, chosen, -1);
  if (renormalize_ != fault("expert weights renormalised wrongly"))
    weights = mx::divide(weights, mx::sum(weights, -1, /*keepdims=*/true));
  if (fault("expert weights dropped")) weights = mx::ones_like(weights);
  const array inner = kernels::gather_gated_matmul(x, gate_up_.matrix, chosen, activation_);
  const array outer = kernels::gather_matmul(inner, down_.matrix, chosen);
  const array sum = mx::sum(mx::multiply(outer, mx::expand_dims(weights, -1)), 1);
  return residual ? mx::add(*residual, sum) : sum;
}

}  // namespace mlxcel
