#include "nn/altup.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/elementwise.h"
#include "nn/fault.h"
#include "nn/moments.h"

namespace mlxcel {

namespace {

/// x times the ratio of magnitudes.
array matched(const array& x, const array& target) {
  const array own = mx::maximum(row_moments(x).magnitude, array(std::sqrt(1e-5f)));
  return mx::multiply(x, mx::divide(target, own));
}

}  // namespace

array stream_of(const array& streams, int i) {
  const int tokens = streams.shape(0), hidden = streams.shape(2);
  return mx::reshape(mx::slice(streams, {0, i, 0}, {tokens, i + 1, hidden}), {tokens, hidden});
}

AltUp::AltUp(const Weights& w, const AltUpShape& shape)
    : s_(shape),
      scale_(w.tensor("correct_output_scale", {s_.hidden})),
      correct_(w.linear("correction_coefs", s_.streams, s_.streams, Bias::none)),
      predict_(w.linear("prediction_coefs", s_.streams * s_.streams, s_.streams, Bias::none)),
      router_(w.linear("modality_router", s_.streams, s_.hidden, Bias::none)),
      norm_(w.rms_norm("router_norm", s_.hidden, s_.eps)) {}

array AltUp::predict(const array& streams) const {
  const int tokens = streams.shape(0), n = s_.streams;
  const array mix = mx::reshape(predict_(modalities(stream_of(streams, s_.active))), {tokens, n, n, 1});
  return mx::add(streams, mx::sum(mx::multiply(mix, mx::expand_dims(streams, 1)), 2));
}

array AltUp::correct(const array& predicted, const array& computed) const {
  const array change = mx::subtract(computed, stream_of(predicted, s_.active));
  const array by = mx::add(correct_(modalities(computed)), array(1.0f));
  return mx::add(predicted, mx::multiply(mx::expand_dims(change, 1), mx::expand_dims(by, -1)));
}

array AltUp::modalities(const array& x) const {
  const array view = mx::multiply(norm_(x), array(1.0f / static_cast<float>(s_.hidden)));
  return kernels::activate(router_(view), Activation::tanh);
}

StreamEnds::StreamEnds(const Weights& w, std::string_view name, const AltUpShape& shape) {
  for (int i = 0; i + 1 < shape.streams; ++i)
    projections_.push_back(w.linear(fmt::format("{}.{}", name, i), shape.hidden, shape.hidden, Bias::none));
}

array StreamEnds::unfold(const array& embedding) const {
  const array target = row_moments(embedding).magnitude;
  std::vector<array> streams{embedding};
  for (const Linear& projection : projections_) streams.push_back(matched(projection(embedding), target));
  return mx::stack(streams, 1);
}

array StreamEnds::fold(const array& streams) const {
  const array first = stream_of(streams, 0), target = row_moments(first).magnitude;
  array sum = first;
  for (size_t i = 0; i < projections_.size(); ++i)
    sum = mx::add(sum, matched(projections_[i](stream_of(streams, static_cast<int>(i) + 1)), target));
  return mx::multiply(sum, array(1.0f / static_cast<float>(projections_.size() + 1)));
}

SparseGatedMlp::SparseGatedMlp(const Weights& w, int hidden, int width, Activation activation, float share)
    : gate_up_(w.fused({"gate_proj", "up_proj"}, {width, width}, hidden, Bias::none)),
      down_(w.linear("down_proj", hidden, width, Bias::none)),
      activation_(activation),
      cuts_(share > 0.0f),
      cut_(cuts_ ? static_cast<float>(normal_quantile(share)) : 0.0f) {}

array SparseGatedMlp::operator()(const array& x) const {
  const array both = gate_up_(x);
  const int tokens = both.shape(0), width = both.shape(1) / 2;
  array gate = mx::slice(both, {0, 0}, {tokens, width});
  if (cuts_ && !fault("sparsity ignored")) {
    const Moments m = row_moments(gate);
    gate = kernels::activate(mx::subtract(gate, mx::add(m.mean, mx::multiply(m.deviation, array(cut_)))),
                             Activation::relu);
  }
  const array up = mx::slice(both, {0, width}, {tokens, 2 * width});
  return down_(mx::multiply(kernels::activate(gate, activation_), up));
}

}  // namespace mlxcel
