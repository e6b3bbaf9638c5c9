#include "nn/short_conv.h"

#include "kernels/recurrent.h"
#include "nn/fault.h"

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

}  // namespace mlxcel
