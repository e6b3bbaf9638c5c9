#include "nn/ssm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/primitive.h"
#include "kernels/recurrent.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

/// A = -exp(A_log): a checkpoint stores the logarithm.
array negative_exp(const array& log) {
  std::vector<float> values(log.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = -std::exp(log.data<float>()[i]);
  return array(values.data(), log.shape(), mx::float32);
}

array columns(const array& x, int from, int to) { return mx::slice(x, {0, from}, {x.shape(0), to}); }

int channels_of(const Mamba2Options& o) { return o.heads * o.head_dim + 2 * o.groups * o.state; }

/// min(max(log(1 + e^(x + bias)), low), high): x [tokens, heads], bias [heads]. MLX's logaddexp rounds the
/// tail of an array otherwise than its vectors, so a token's bits would follow from its place: our kernels'
/// form goes through one scalar function.
array time_step(const array& x, const array& bias, float low, float high) {
  if (kernel_mode() == KernelMode::reference)
    return mx::minimum(mx::maximum(mx::logaddexp(mx::add(x, bias), array(0.0f)), array(low)), array(high));
  const int tokens = x.shape(0), heads = x.shape(1);
  return kernels::native_op("time_step", x.shape(), mx::float32, {x, bias}, [=](const kernels::Buffers& b) {
    const auto fill = [&](int begin, int end) {
      for (ptrdiff_t i = static_cast<ptrdiff_t>(begin) * heads; i < static_cast<ptrdiff_t>(end) * heads;
           ++i) {
        const float v = b.input<float>(0)[i] + b.input<float>(1)[i % heads];
        b.output<float>()[i] =
            std::min(std::max(std::max(v, 0.0f) + std::log1p(std::exp(-std::abs(v))), low), high);
      }
    };
    if (tokens < 16) return fill(0, tokens);
    WorkerPool::shared().each(tokens, 8, fill);
  });
}

}  // namespace

Mamba2Mixer::Mamba2Mixer(const Weights& w, const Mamba2Options& options)
    : o_(options),
      in_(w.linear("in_proj", o_.heads * o_.head_dim + channels_of(o_) + o_.heads, o_.hidden, o_.bias)),
      out_(w.linear("out_proj", o_.hidden, o_.heads * o_.head_dim, o_.bias)),
      conv_weight_(w.tensor("conv1d.weight", {channels_of(o_), o_.taps})),
      conv_bias_(w.bias("conv1d.bias", channels_of(o_), o_.conv_bias)),
      dt_bias_(w.tensor("dt_bias", {o_.heads})),
      a_(w.tensor("A_log", {o_.heads})),
      d_(w.tensor("D", {o_.heads})),
      norm_weight_(w.tensor("norm.weight", {o_.heads * o_.head_dim})),
      conv_slot_(w.layout().add_recurrent({.name = "conv", .shape = {o_.taps - 1, channels_of(o_)}})),
      ssm_slot_(w.layout().add_recurrent({.name = "ssm", .shape = {o_.heads, o_.head_dim, o_.state}})) {
  if (a_.is_available()) a_ = negative_exp(a_);
}

array Mamba2Mixer::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0), inner = o_.heads * o_.head_dim, shared = o_.groups * o_.state;
  const array projected = in_(x);
  const array gate = columns(projected, 0, inner);
  const array streams = columns(projected, inner, inner + channels_of(o_));
  const array dt = time_step(columns(projected, inner + channels_of(o_), projected.shape(1)), dt_bias_,
                             o_.dt_min, o_.dt_max);

  const auto [mixed, conv_state] = kernels::causal_conv(
      streams, conv_weight_, conv_bias_, step.recurrent(conv_slot_), step.offsets(), o_.activation);
  step.set_recurrent(conv_slot_, conv_state);

  const array input = mx::reshape(columns(mixed, 0, inner), {tokens, o_.heads, o_.head_dim});
  const array b = mx::reshape(columns(mixed, inner, inner + shared), {tokens, o_.groups, o_.state});
  const array c =
      mx::reshape(columns(mixed, inner + shared, inner + 2 * shared), {tokens, o_.groups, o_.state});
  const auto [scanned, ssm_state] =
      kernels::ssm_scan(input, dt, a_, b, c, d_, step.recurrent(ssm_slot_), step.offsets());
  step.set_recurrent(ssm_slot_, ssm_state);

  // Gated first, then normed: per group, then weighted over the full width.
  array y = mx::multiply(mx::reshape(scanned, {tokens, inner}), kernels::activate(gate, Activation::silu));
  const int norm_groups = o_.norm_by_group && !fault("gated norm over the full width") ? o_.groups : 1;
  y = kernels::rms_norm(mx::reshape(y, {tokens, norm_groups, inner / norm_groups}), std::nullopt, o_.eps);
  y = mx::multiply(mx::reshape(y, {tokens, inner}), norm_weight_);
  return out_(y, residual);
}

}  // namespace mlxcel
