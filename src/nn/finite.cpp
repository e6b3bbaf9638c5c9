#include "nn/finite.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace mlxcel {

namespace {

/// The first value whose exponent is all ones. Whole runs are looked at before single values, for speed.
template <class Bits>
std::optional<size_t> first_odd(const Bits* values, size_t count, Bits exponent) {
  constexpr size_t run = 4096;
  for (size_t at = 0; at < count; at += run) {
    const size_t end = std::min(count, at + run);
    Bits odd = 0;
    for (size_t i = at; i < end; ++i)
      odd = static_cast<Bits>(odd | static_cast<Bits>((values[i] & exponent) == exponent));
    if (odd == 0) continue;
    for (size_t i = at; i < end; ++i)
      if ((values[i] & exponent) == exponent) return i;
  }
  return std::nullopt;
}

std::optional<size_t> first_odd(const array& values) {
  const size_t count = values.size();
  if (values.dtype() == mx::float32)
    return first_odd(static_cast<const uint32_t*>(values.data<void>()), count, uint32_t{0x7f800000});
  if (values.dtype() == mx::float16)
    return first_odd(static_cast<const uint16_t*>(values.data<void>()), count, uint16_t{0x7c00});
  if (values.dtype() == mx::bfloat16)
    return first_odd(static_cast<const uint16_t*>(values.data<void>()), count, uint16_t{0x7f80});
  return std::nullopt;  // codes
}

void require_finite(const std::string& name, const char* plane, const array& values) {
  if (!values.flags().row_contiguous) return;  // a view; its whole is looked at where it is loaded
  if (const auto at = first_odd(values))
    fail(ErrorKind::bad_checkpoint, "{}: expected numbers, found NaN or an infinity{} at value {} of {}",
         name, plane, *at, values.size());
}

}  // namespace

void require_finite(const std::string& name, const Weight& weight) {
  require_finite(name, "", weight.data);
  if (weight.scales) require_finite(name, " in its scales", *weight.scales);
  if (weight.biases) require_finite(name, " in its biases", *weight.biases);
}

}  // namespace mlxcel
