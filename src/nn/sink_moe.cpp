#include "nn/sink_moe.h"

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

SparseMoe bank(const Weights& w, const SinkMoeOptions& o, int experts, const char* name) {
  MoeOptions moe;
  moe.experts = experts;
  moe.width = o.width;
  moe.activation = o.activation;
  moe.router = "";
  moe.bank = name;
  return SparseMoe(w, o.hidden, moe);
}

}  // namespace

SinkMoe::SinkMoe(const Weights& w, const SinkMoeOptions& options)
    : o_(options),
      router_(w.linear("gate", o_.experts + o_.shared, o_.hidden, Bias::none)),
      correction_(w.tensor("gate.e_score_correction_bias", {o_.experts})),
      scale_(w.tensor("gate.global_scale", {1})),
      routed_(bank(w, o_, o_.experts, "experts")),
      shared_(bank(w, o_, o_.shared, "shared_experts")) {}

array SinkMoe::operator()(const array& x) const {
  const int tokens = x.shape(0), all = o_.experts + o_.shared;
  const array score = kernels::activate(router_(x), Activation::sigmoid);
  const array own = mx::slice(score, {0, 0}, {tokens, o_.experts});
  const array sinks = mx::slice(score, {0, o_.experts}, {tokens, all});
  const array wanted = fault("correction bias dropped") ? own : mx::add(own, correction_);
  const array order = mx::argsort(mx::negative(wanted), -1);
  const array chosen = mx::astype(mx::slice(order, {0, 0}, {tokens, o_.per_token}), mx::int32);
  const array best = mx::take_along_axis(own, chosen, -1);
  const array sum = mx::sum(mx::concatenate({best, sinks}, -1), -1, /*keepdims=*/true);
  const array factor = mx::divide(mx::multiply(scale_, array(o_.scale)), sum);
  const array first = mx::broadcast_to(mx::arange(0, o_.shared, mx::int32), {tokens, o_.shared});
  const array routed = routed_.with(x, chosen, mx::multiply(best, factor), std::nullopt);
  if (fault("shared experts dropped")) return routed;
  return mx::add(routed, shared_.with(x, mx::contiguous(first), mx::multiply(sinks, factor), std::nullopt));
}

}  // namespace mlxcel
