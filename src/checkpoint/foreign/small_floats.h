// Floats of 4 and 8 bits as tables. Sources: OCP Microscaling Formats 1.0 (E2M1, E8M0), OCP OFP8 (E4M3).
// Thread: any.
#pragma once

#include <array>
#include <cstdint>

namespace mlxcel {

/// Sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
float from_e2m1(unsigned code);
/// By code; the two NaNs stay NaN.
const std::array<float, 256>& e4m3_values();
/// 2^(code - 127); 255 is NaN.
float from_e8m0(uint8_t code);

}  // namespace mlxcel
