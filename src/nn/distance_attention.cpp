#include "nn/distance_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/recurrent.h"
#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

Smear::Smear(const Weights& w, int width, int taps)
    : weight_(w.tensor("conv1d.weight", {width, taps})),
      slot_(w.layout().add_recurrent({.name = "conv", .shape = {taps - 1, width}})) {}

array Smear::operator()(const array& x, Step& step) const {
  const auto [mixed, state] =
      kernels::causal_conv(x, weight_, std::nullopt, step.recurrent(slot_), step.offsets(), Activation::none);
  step.set_recurrent(slot_, state);
  return fault("earlier tokens ignored") ? x : mx::add(mixed, x);
}

DistanceAttention::DistanceAttention(const Weights& w, const DistanceOptions& options)
    : o_(options),
      in_(w.fused(
          {"q_proj", "k_proj", "v_proj", "r_proj"},
          {o_.heads * o_.head_dim, o_.kv_heads * o_.head_dim, o_.kv_heads * o_.head_dim, o_.heads * o_.inner},
          o_.hidden, Bias::none)),
      out_(w.linear("o_proj", o_.hidden, o_.heads * o_.head_dim, Bias::none)),
      distances_(w.linear("rel_logits_proj", o_.reach, o_.inner, Bias::none)),
      q_norm_(w.rms_norm("q_norm", o_.head_dim, o_.eps)),
      k_norm_(w.rms_norm("k_norm", o_.head_dim, o_.eps)),
      keys_(w / "k_sconv", o_.kv_heads * o_.head_dim, o_.taps),
      values_(w / "v_sconv", o_.kv_heads * o_.head_dim, o_.taps),
      slot_(w.layout().add_kv({.kv_heads = o_.kv_heads,
                               .key_dim = o_.head_dim,
                               .value_dim = o_.head_dim,
                               .window = fault("window ignored") ? 0 : o_.window})) {}

array DistanceAttention::operator()(const array& x, Step& step) const {
  const array all = in_(x);
  const int tokens = x.shape(0), q_width = o_.heads * o_.head_dim, kv_width = o_.kv_heads * o_.head_dim;
  const auto part = [&](int from, int width) { return mx::slice(all, {0, from}, {tokens, from + width}); };
  const auto heads = [&](const array& y, int count) { return mx::reshape(y, {tokens, count, -1}); };
  array q = q_norm_(heads(part(0, q_width), o_.heads));
  const array k = k_norm_(heads(keys_(part(q_width, kv_width), step), o_.kv_heads));
  const array v = heads(values_(part(q_width + kv_width, kv_width), step), o_.kv_heads);
  const array mix =
      mx::reshape(part(q_width + 2 * kv_width, o_.heads * o_.inner), {tokens * o_.heads, o_.inner});
  array bias = array(0.0f);
  if (distances_.adapted()) {  // adapters know a step's rows, not those of its heads: head by head
    std::vector<array> rows;
    for (int h = 0; h < o_.heads; ++h)
      rows.push_back(distances_(mx::contiguous(part(q_width + 2 * kv_width + h * o_.inner, o_.inner))));
    bias = mx::stack(rows, 1);
  } else {
    bias = mx::reshape(distances_(mix), {tokens, o_.heads, o_.reach});
  }
  if (o_.floor > 0 && !fault("query temperature dropped")) {
    const array sharper = sharpness(step);
    q = mx::multiply(q, sharper);
    bias = mx::multiply(bias, sharper);
  }
  AttendOptions options{.scale = 1.0f / static_cast<float>(o_.head_dim)};
  if (!fault("distances not weighed")) options.bias = bias;
  return out_(attend(q, k, v, step, slot_, options));
}

/// Of each token, [tokens, 1, 1]: computed on the host, so that a token's place in the step changes no bit.
array DistanceAttention::sharpness(const Step& step) const {
  std::vector<float> factors;
  for (const StepRow& row : step.rows())
    for (int i = 0; i < row.count; ++i) {
      const float seen = static_cast<float>(row.position + i + 1) / static_cast<float>(o_.floor);
      factors.push_back(1.0f + o_.sharpening * std::log(std::max(seen, 1.0f)));
    }
  return array(factors.data(), {static_cast<int>(factors.size()), 1, 1}, mx::float32);
}

}  // namespace mlxcel
