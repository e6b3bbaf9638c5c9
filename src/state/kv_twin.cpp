#include "state/kv_twin.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace mlxcel {
namespace {

using kernels::PageType;

const std::vector<float> kLevels16 = {-2.7326f, -2.0690f, -1.6180f, -1.2562f, -0.9424f, -0.6568f,
                                      -0.3881f, -0.1284f, 0.1284f,  0.3881f,  0.6568f,  0.9424f,
                                      1.2562f,  1.6180f,  2.0690f,  2.7326f};
const std::vector<float> kLevels8 = {-2.1520f, -1.3439f, -0.7560f, -0.2451f,
                                     0.2451f,  0.7560f,  1.3439f,  2.1520f};

array where_positive(const array& x, const array& then) {
  return mx::where(mx::greater(x, array(0.0f)), then, array(0.0f));
}

array in_steps(const array& x) {
  const array top = mx::max(mx::abs(x), -1, true);
  return mx::round(x * where_positive(top, array(127.0f) / top)) * (top / array(127.0f));
}

/// The kernels' signs: an integer hash of the place.
array signs(int count) {
  std::vector<float> values;
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    unsigned hash = i * 0x85EBCA6Bu;
    hash ^= hash >> 13;
    hash *= 0xC2B2AE35u;
    values.push_back(((hash ^ (hash >> 16)) & 1u) != 0 ? -1.0f : 1.0f);
  }
  return array(values.begin(), {count}, mx::float32);
}

array on_codebook(const array& x, const std::vector<float>& levels) {
  const int count = x.shape(-1);
  const float share = 1.0f / std::sqrt(static_cast<float>(count));
  const array sign = signs(count);
  const array turned = mx::hadamard_transform(x * sign, share);
  const array width = mx::sqrt(mx::mean(mx::square(turned), -1, true));
  const array even = turned * where_positive(width, array(1.0f) / width);
  array codes = mx::zeros(x.shape(), mx::int32);
  for (size_t k = 1; k < levels.size(); ++k)
    codes = codes + mx::astype(mx::greater(even, array(0.5f * (levels[k - 1] + levels[k]))), mx::int32);
  const array level = mx::take(array(levels.begin(), {static_cast<int>(levels.size())}, mx::float32), codes);
  const array scale = mx::sum(turned * level, -1, true) / mx::sum(mx::square(level), -1, true);
  return mx::hadamard_transform(level * scale, share) * sign;
}

array one_part(const array& x, PageType type) {
  if (type == PageType::i8) return in_steps(x);
  return on_codebook(x, type == PageType::t4 ? kLevels16 : kLevels8);
}

}  // namespace

array as_kept(const array& x, PageType type, int split) {
  if (kernels::is_dense(type)) return x;
  const array wide = mx::astype(x, mx::float32);
  const int dim = wide.shape(-1);
  if (split <= 0 || split >= dim) return one_part(wide, type);
  const auto parts = mx::split(wide, Shape{split}, -1);
  return mx::concatenate({one_part(parts[0], type), one_part(parts[1], type)}, -1);
}

}  // namespace mlxcel
