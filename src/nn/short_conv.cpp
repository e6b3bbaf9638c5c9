#include "nn/short_conv.h"

#include "kernels/recurrent.h"
#include "nn/fault.h"
#include "nn/recurrent_phases.h"

namespace mlxcel {

ShortConv::ShortConv(const Weights& w, int hidden, int taps, Bias bias)
    : in_(w.linear("in_proj", 3 * hidden, hidden, bias)),
      out_(w.linear("out_proj", hidden, hidden, bias)),
      conv_weight_(w.tensor("conv.weight", {hidden, taps})),
      conv_bias_(w.bias("conv.bias", hidden, bias)),
      slot_(w.layout().add_recurrent({.name = "conv", .shape = {taps - 1, hidden}})) {}

array ShortConv::operator()(const array& h, Step& step, const Residual& residual) const {
  const array all = in_(h);
  const int hidden = all.shape(1) / 3;
  const auto part = [&](int i) { return mx::slice(all, {0, i * hidden}, {all.shape(0), (i + 1) * hidden}); };
  const array before = part(fault("gates of the convolution swapped") ? 1 : 0);
  const array after = part(fault("gates of the convolution swapped") ? 0 : 1);
  const auto [mixed, state] = kernels::causal_conv(mx::multiply(before, part(2)), conv_weight_, conv_bias_,
                                                   step.recurrent(slot_), step.offsets(), Activation::none);
  step.set_recurrent(slot_, state);
  return out_(mx::multiply(after, mixed), residual);
}

bool ShortConv::phases(PhaseList& list) const {
  const auto residual = list.residual();
  if (!list.linear(in_)) return false;
  const auto all = list.value();
  const int hidden = in_.out / 3;
  const auto gated = token_phase(list, {all}, {hidden}, [hidden](const kernels::WorkView& v, ptrdiff_t t) {
    const float* const from = v.read[0] + t * v.stride[0];
    float* const to = v.made[0] + t * hidden;
    for (int i = 0; i < hidden; ++i) to[i] = from[i] * from[2 * hidden + i];
  });
  const auto mixed = conv_phase(list, gated[0], hidden, conv_weight_, conv_bias_, slot_, Activation::none);
  if (mixed == PhaseList::kNone) return false;
  list.set_value(mixed);
  list.multiply(list.part(all, hidden, hidden));
  return list.linear(out_, residual);
}

}  // namespace mlxcel
