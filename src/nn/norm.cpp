#include "nn/norm.h"

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

array RmsNorm::operator()(const array& x) const {
  if (fault("norm offset dropped")) return kernels::rms_norm(x, weight, eps, 0.0f);
  if (fault("norm eps dropped")) return kernels::rms_norm(x, weight, 1e-12f, offset);
  return kernels::rms_norm(x, weight, eps, offset);
}

array LayerNorm::operator()(const array& x) const {
  if (fault("layer norm bias dropped")) return kernels::layer_norm(x, weight, std::nullopt, eps);
  if (fault("layer norm as rms norm")) return kernels::rms_norm(x, weight, eps);
  return kernels::layer_norm(x, weight, bias, eps);
}

array Norm::operator()(const array& x) const {
  return std::visit([&](const auto& norm) { return norm(x); }, norm_);
}

}  // namespace mlxcel
