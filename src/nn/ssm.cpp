#include "nn/ssm.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/isa/recurrent.h"
#include "kernels/primitive.h"
#include "kernels/recurrent.h"
#include "nn/delta.h"
#include "nn/fault.h"
#include "nn/recurrent_phases.h"

namespace mlxcel {

namespace {

array columns(const array& x, int from, int to) { return mx::slice(x, {0, from}, {x.shape(0), to}); }

/// log(1 + e^v) within limits, without overflow.
float one_step(float v, float low, float high) {
  return std::min(std::max(std::max(v, 0.0f) + std::log1p(std::exp(-std::abs(v))), low), high);
}

int channels_of(const Mamba2Options& o) { return o.heads * o.head_dim + 2 * o.groups * o.state; }

}  // namespace

// MLX's logaddexp rounds the tail of an array otherwise than its vectors, so a token's bits would follow from
// its place: our kernels' form goes through one scalar function.
array time_step(const array& x, const array& bias, float low, float high) {
  if (kernel_mode() == KernelMode::reference)
    return mx::minimum(mx::maximum(mx::logaddexp(mx::add(x, bias), array(0.0f)), array(low)), array(high));
  const int tokens = x.shape(0), heads = x.shape(1);
  return kernels::native_op("time_step", x.shape(), mx::float32, {x, bias}, [=](const kernels::Buffers& b) {
    const auto fill = [&](int begin, int end) {
      for (ptrdiff_t i = static_cast<ptrdiff_t>(begin) * heads; i < static_cast<ptrdiff_t>(end) * heads;
           ++i) {
        b.output<float>()[i] = one_step(b.input<float>(0)[i] + b.input<float>(1)[i % heads], low, high);
      }
    };
    if (tokens < 16) return fill(0, tokens);
    WorkerPool::shared().each(tokens, 8, fill);
  });
}

void Mamba2Options::read_limits(const Config& c, const char* key) {
  const auto limit = c.get<std::vector<float>>(key, {0.0f, std::numeric_limits<float>::infinity()});
  if (limit.size() != 2 || !(limit[0] <= limit[1]))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected two numbers, low and high, found [{}]", c.where(), key,
         fmt::join(limit, ", "));
  dt_min = limit[0];
  dt_max = limit[1];
}

void Mamba2Options::check(const Config& c, long long inner) const {
  if (inner != static_cast<long long>(heads) * head_dim)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads of {}: expected an inner width of {}", c.where(), heads,
         head_dim, inner);
  if (heads % groups != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads: expected a multiple of {} groups", c.where(), heads,
         groups);
}

Mamba2Mixer::Mamba2Mixer(const Weights& w, const Mamba2Options& options)
    : o_(options),
      in_(w.linear("in_proj", o_.heads * o_.head_dim + channels_of(o_) + o_.heads, o_.hidden, o_.bias)),
      out_(w.linear("out_proj", o_.hidden, o_.heads * o_.head_dim, o_.out_bias.value_or(o_.bias))),
      conv_weight_(w.tensor("conv1d.weight", {channels_of(o_), o_.taps})),
      conv_bias_(w.bias("conv1d.bias", channels_of(o_), o_.conv_bias)),
      dt_bias_(w.tensor("dt_bias", {o_.heads})),
      a_(negative_exp(w.tensor("A_log", {o_.heads}))),
      d_(w.tensor("D", {o_.heads})),
      conv_slot_(w.layout().add_recurrent({.name = "conv", .shape = {o_.taps - 1, channels_of(o_)}})),
      ssm_slot_(w.layout().add_recurrent({.name = "ssm", .shape = {o_.heads, o_.head_dim, o_.state}})) {
  const int inner = o_.heads * o_.head_dim, shared = o_.groups * o_.state;
  if (o_.norm) norm_weight_ = w.tensor("norm.weight", {inner});
  if (o_.stream_scales.empty()) return;
  std::vector<float> scales;
  const int widths[] = {inner, inner, shared, shared, o_.heads};
  for (size_t i = 0; i < std::size(widths); ++i)
    scales.insert(scales.end(), static_cast<size_t>(widths[i]), o_.stream_scales.at(i));
  stream_scales_ = array(scales.data(), {static_cast<int>(scales.size())}, mx::float32);
}

array Mamba2Mixer::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0), inner = o_.heads * o_.head_dim, shared = o_.groups * o_.state;
  array projected = in_(o_.in_scale == 1.0f ? x : mx::multiply(x, array(o_.in_scale)));
  if (stream_scales_ && !fault("multipliers dropped")) projected = mx::multiply(projected, *stream_scales_);
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

  // Normed per group, then weighted over the full width; gated before or after.
  const array opened = kernels::activate(gate, Activation::silu);
  const auto gated = [&](const array& y) { return mx::multiply(y, opened); };
  array y = mx::reshape(scanned, {tokens, inner});
  if (!o_.norm_before_gate) y = gated(y);
  if (norm_weight_) {
    const int norm_groups = fault("gated norm over the full width") ? 1 : o_.groups;
    y = kernels::rms_norm(mx::reshape(y, {tokens, norm_groups, inner / norm_groups}), std::nullopt, o_.eps);
    y = mx::multiply(mx::reshape(y, {tokens, inner}), *norm_weight_);
  }
  if (o_.norm_before_gate) y = gated(y);
  return out_(y, residual);
}

bool Mamba2Mixer::phases(PhaseList& list) const {
  if (o_.in_scale != 1.0f || stream_scales_ || !are_constants({dt_bias_, a_, d_})) return false;
  const auto residual = list.residual();
  const int inner = o_.heads * o_.head_dim, shared = o_.groups * o_.state, channels = channels_of(o_);
  if (!list.linear(in_)) return false;
  const auto all = list.value();
  const auto mixed = conv_phase(list, list.part(all, inner, channels), channels, conv_weight_, conv_bias_,
                                conv_slot_, o_.activation);
  if (mixed == PhaseList::kNone) return false;

  const auto streams = token_phase(
      list, {mixed, list.part(all, inner + channels, o_.heads)}, {inner, o_.heads, shared, shared},
      [=, heads = o_.heads, low = o_.dt_min, high = o_.dt_max, bias = dt_bias_](const kernels::WorkView& v,
                                                                                ptrdiff_t t) {
        const float* const from = v.read[0] + t * v.stride[0];
        std::copy_n(from, inner, v.made[0] + t * inner);
        std::copy_n(from + inner, shared, v.made[2] + t * shared);
        std::copy_n(from + inner + shared, shared, v.made[3] + t * shared);
        const float* const step = v.read[1] + t * v.stride[1];
        for (int h = 0; h < heads; ++h)
          v.made[1][t * heads + h] = one_step(step[h] + bias.data<float>()[h], low, high);
      });
  const auto scanned =
      scan_phase(list, streams, inner, o_.heads, ssm_slot_,
                 [o = o_, inner, shared, a = a_, d = d_, body = kernels::recurrent_bodies().scan](
                     const kernels::WorkView& v, const ScanTokens& at, int head) {
                   const ptrdiff_t held = at.row * static_cast<ptrdiff_t>(inner) * o.state;
                   body({.x = v.read[0] + at.first * inner,
                         .dt = v.read[1] + at.first * o.heads,
                         .a = a.data<float>(),
                         .b = v.read[2] + at.first * shared,
                         .c = v.read[3] + at.first * shared,
                         .d = d.data<float>(),
                         .before = v.from[0] + held,
                         .out = v.made[0] + at.first * inner,
                         .after = v.given[0] + held,
                         .count = at.count,
                         .heads = o.heads,
                         .head_dim = o.head_dim,
                         .groups = o.groups,
                         .state_dim = o.state},
                        head);
                 });

  list.set_value(scanned);
  const auto gate = list.part(all, 0, inner);
  if (!o_.norm_before_gate) list.multiply(gate, Activation::silu);
  const Norm norm(RmsNorm{.weight = std::nullopt, .eps = o_.eps});
  if (norm_weight_ && !list.columns(0, o_.groups, inner / o_.groups, 0.0f, &norm, norm_weight_)) return false;
  if (o_.norm_before_gate) list.multiply(gate, Activation::silu);
  return list.linear(out_, residual);
}

}  // namespace mlxcel
