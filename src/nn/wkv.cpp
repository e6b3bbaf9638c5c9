#include "nn/wkv.h"

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/recurrent.h"
#include "nn/delta.h"
#include "nn/fault.h"
#include "nn/moments.h"

namespace mlxcel {

namespace {

NarrowPair narrow(const Weights& w, const char* name, int hidden, int rank, Activation activation,
                  Bias bias) {
  const Weights scope = w / name;
  return {.in = scope.linear("lora.0", rank, hidden, Bias::none),
          .out = scope.linear("lora.2", hidden, rank, bias),
          .activation = activation};
}

/// A vector per head, stored flat or by heads: [heads, head_dim].
array per_head(const Weights& w, const char* name, const TimeMixingSizes& s) {
  const Shape shape{s.heads, s.head_dim};
  const auto stored = w.peek(name);
  if (stored && stored->shape == shape) return w.tensor(name, shape);
  const array flat = w.tensor(name, {s.heads * s.head_dim});
  return flat.is_available() ? array(flat.data<float>(), shape, mx::float32) : mx::zeros(shape);
}

}  // namespace

TokenShift::TokenShift(const Weights& w, int hidden)
    : slot_(w.layout().add_recurrent({.name = "shift", .shape = {1, hidden}})) {
  std::vector<float> taps;
  for (int i = 0; i < hidden; ++i) taps.insert(taps.end(), {1.0f, 0.0f});
  taps_ = array(taps.data(), {hidden, 2}, mx::float32);
}

array TokenShift::operator()(const array& x, Step& step) const {
  const auto [before, last] =
      kernels::causal_conv(x, *taps_, std::nullopt, step.recurrent(slot_), step.offsets(), Activation::none);
  step.set_recurrent(slot_, last);
  return before;
}

array NarrowPair::operator()(const array& x) const { return out(kernels::activate(in(x), activation)); }

TimeMixing::TimeMixing(const Weights& w, const TimeMixingSizes& sizes, bool first,
                       std::shared_ptr<std::optional<array>> values)
    : s_(sizes),
      shift_(w, s_.hidden),
      r_(w.linear("r_proj", s_.hidden, s_.hidden, Bias::none)),
      k_(w.linear("k_proj", s_.hidden, s_.hidden, Bias::none)),
      v_(w.linear("v_proj", s_.hidden, s_.hidden, Bias::none)),
      out_(w.linear("o_proj", s_.hidden, s_.hidden, Bias::none)),
      decay_(narrow(w, "w_lora", s_.hidden, s_.decay_rank, Activation::tanh, Bias::required)),
      rate_(narrow(w, "a_lora", s_.hidden, s_.rate_rank, Activation::none, Bias::required)),
      gate_(narrow(w, "g_lora", s_.hidden, s_.gate_rank, Activation::sigmoid, Bias::none)),
      k_k_(per_head(w, "k_k", s_)),
      k_a_(per_head(w, "k_a", s_)),
      r_k_(per_head(w, "r_k", s_)),
      norm_weight_(per_head(w, "g_norm.weight", s_)),
      norm_bias_(per_head(w, "g_norm.bias", s_)),
      slot_(w.layout().add_recurrent({.name = "wkv", .shape = {s_.heads, s_.head_dim, s_.head_dim}})),
      values_(std::move(values)) {
  for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"})
    mix_.push_back(w.tensor(name, {s_.hidden}));
  if (!first) blend_ = narrow(w, "v_lora", s_.hidden, s_.value_rank, Activation::none, Bias::required);
}

array TimeMixing::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0);
  const array change = mx::subtract(shift_(x, step), x);
  const auto mixed = [&](size_t i) { return mx::add(x, mx::multiply(change, mix_[i])); };
  const auto by_head = [&](const array& y) { return mx::reshape(y, {tokens, s_.heads, s_.head_dim}); };
  const auto open = [](const array& y) { return kernels::activate(y, Activation::sigmoid); };

  const array r = by_head(r_(mixed(0))), raw = by_head(k_(mixed(2))), xv = mixed(3);
  const array rate = by_head(open(rate_(mixed(4))));
  array v = by_head(v_(xv));
  if (!blend_)
    *values_ = v;
  else if (!fault("first values dropped"))
    v = mx::add(v, mx::multiply(mx::subtract(values_->value(), v), by_head(open((*blend_)(xv)))));
  const array fade = mx::multiply(open(decay_(mixed(1))), array(-0.606531f));
  const array decay = by_head(kernels::activate(fade, Activation::exp));
  const array direction = l2_norm(mx::multiply(raw, k_k_), 1e-14f);
  const array k =
      mx::multiply(raw, mx::add(mx::multiply(mx::subtract(rate, array(1.0f)), k_a_), array(1.0f)));

  const array read = mx::negative(direction);
  const auto [seen, state] =
      kernels::delta_scan({.decay = fault("memory never fades") ? mx::ones_like(decay) : decay,
                           .read = fault("delta rule without correction") ? mx::zeros_like(read) : read,
                           .write = mx::multiply(direction, rate),
                           .key = k,
                           .query = r,
                           .value = v},
                          step.recurrent(slot_), step.offsets());
  step.set_recurrent(slot_, state);

  const array normed = kernels::layer_norm(seen, std::nullopt, std::nullopt, 64e-5f);
  const array now = mx::multiply(row_sums(mx::multiply(mx::multiply(r, k), r_k_)), v);
  const array y = mx::add(mx::add(mx::multiply(normed, norm_weight_), norm_bias_), now);
  return out_(mx::multiply(mx::reshape(y, {tokens, s_.hidden}), gate_(mixed(5))), residual);
}

ChannelMixing::ChannelMixing(const Weights& w, int hidden, int width)
    : shift_(w, hidden),
      mix_(w.tensor("x_k", {hidden})),
      key_(w.linear("key", width, hidden, Bias::none)),
      value_(w.linear("value", hidden, width, Bias::none)) {}

array ChannelMixing::operator()(const array& x, Step& step, const Residual& residual) const {
  const array mixed = mx::add(x, mx::multiply(mx::subtract(shift_(x, step), x), mix_));
  return value_(kernels::activate(key_(mixed), Activation::relu2), residual);
}

}  // namespace mlxcel
