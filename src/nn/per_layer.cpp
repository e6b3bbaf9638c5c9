#include "nn/per_layer.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

float root_in_type(const Weights& w, std::string_view table, int width) {
  const float exact = std::sqrt(static_cast<float>(width));
  const auto dtype = w.dtype(table);
  if (dtype == mx::bfloat16) return static_cast<float>(mx::bfloat16_t(exact));
  if (dtype == mx::float16) return static_cast<float>(mx::float16_t(exact));
  return exact;
}

PerLayerInputs::PerLayerInputs(const Weights& w, const PerLayerOptions& options)
    : o_(options),
      table_(w.embedding("embed_tokens_per_layer", o_.vocab, o_.layers * o_.width,
                         root_in_type(w, "embed_tokens_per_layer.weight", o_.width))),
      projection_(w.linear("per_layer_model_projection", o_.layers * o_.width, o_.hidden, Bias::none)),
      norm_(w.rms_norm("per_layer_projection_norm", o_.width, o_.eps)),
      now_(std::make_shared<std::optional<array>>()) {}

void PerLayerInputs::begin(const array& h, const Step& step) const {
  const Shape shape{h.shape(0), o_.layers, o_.width};
  const array inside = mx::less(step.tokens(), array(o_.vocab));
  const array ids = mx::where(inside, step.tokens(), mx::zeros_like(step.tokens()));
  const array own =
      mx::multiply(mx::reshape(kernels::take_rows(table_.table, ids), shape), array(table_.scale));
  const float scale = 1.0f / std::sqrt(static_cast<float>(o_.hidden));
  const array projected = norm_(mx::reshape(mx::multiply(projection_(h), array(scale)), shape));
  const array sum = fault("per layer table left out") ? projected : mx::add(projected, own);
  *now_ = mx::multiply(sum, array(1.0f / std::sqrt(2.0f)));
}

array PerLayerInputs::layer(int i) const {
  const array& all = now_->value();
  return mx::reshape(mx::slice(all, {0, i, 0}, {all.shape(0), i + 1, o_.width}), {all.shape(0), o_.width});
}

PerLayerGate::PerLayerGate(const Weights& w, int hidden, int width, Activation activation, float eps)
    : gate_(w.linear("per_layer_input_gate", width, hidden, Bias::none)),
      out_(w.linear("per_layer_projection", hidden, width, Bias::none)),
      norm_(w.rms_norm("post_per_layer_input_norm", hidden, eps)),
      activation_(activation) {}

array PerLayerGate::operator()(const array& h, const array& input) const {
  return norm_(out_(mx::multiply(kernels::activate(gate_(h), activation_), input)));
}

}  // namespace mlxcel
