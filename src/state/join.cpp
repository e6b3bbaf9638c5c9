#include "state/join.h"

#include "kernels/elementwise.h"

namespace mlxcel {
namespace {

constexpr float kFar = 80.0f;  // beside e^80 an f32 loses the other summand

array soft_ramp(const array& x) { return kernels::activate(x, kernels::Activation::softplus); }
array share_of(const array& x) { return kernels::activate(x, kernels::Activation::sigmoid); }

/// How much higher the far level is, bounded: levels of empty sets are minus infinity.
array ahead_of(const Leveled& near, const Leveled& far) {
  const array ahead = mx::subtract(far.level, near.level);
  return mx::minimum(mx::maximum(ahead, array(-kFar)), array(kFar));
}

}  // namespace

array joined_level(const Leveled& near, const Leveled& far) {
  return mx::add(mx::maximum(near.level, far.level), soft_ramp(mx::negative(mx::abs(ahead_of(near, far)))));
}

array joined(const Leveled& near, const Leveled& far, const std::optional<array>& sinks) {
  const int tokens = near.level.shape(0), heads = near.level.shape(1);
  const array ahead = ahead_of(near, far);
  array near_share = share_of(mx::negative(ahead)), far_share = share_of(ahead);
  if (sinks) {
    const array whole = share_of(mx::subtract(joined_level(near, far), mx::astype(*sinks, mx::float32)));
    near_share = mx::multiply(near_share, whole);
    far_share = mx::multiply(far_share, whole);
  }
  const auto part = [&](const array& out, const array& share) {
    return mx::multiply(mx::reshape(out, {tokens, heads, -1}), mx::expand_dims(share, 2));
  };
  return mx::reshape(mx::add(part(near.out, near_share), part(far.out, far_share)), near.out.shape());
}

}  // namespace mlxcel
