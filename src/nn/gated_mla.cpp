#include "nn/gated_mla.h"

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

GatedMla::GatedMla(const Weights& w, const MlaOptions& options, bool gated) : Mla(w, options) {
  if (gated) gate_ = w.linear("g_proj", options.heads * options.value_dim, options.hidden, Bias::none);
}

array GatedMla::operator()(const array& x, Step& step, const Residual& residual) const {
  const array all = values(seen(latents(x, step), step, nullptr));
  if (!gate_ || fault("output gate left out")) return out_(all, residual);
  return out_(mx::multiply(all, kernels::activate((*gate_)(x), Activation::sigmoid)), residual);
}

}  // namespace mlxcel
