#include "checkpoint/foreign/small_floats.h"

#include <cmath>
#include <limits>

namespace mlxcel {

float from_e2m1(unsigned code) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (unsigned code = 0; code < 256; ++code) {
      const int exponent = static_cast<int>(code >> 3 & 15u);
      const auto mantissa = static_cast<float>(code & 7u);
      float value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0f + mantissa, exponent - 10);
      if ((code & 127u) == 127u) value = std::numeric_limits<float>::quiet_NaN();
      values[code] = (code & 128u) != 0 ? -value : value;
    }
    return values;
  }();
  return table;
}

float from_e8m0(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(code) - 127);
}

}  // namespace mlxcel
