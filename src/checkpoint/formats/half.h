// IEEE half precision as bits, with the processor's conversions where it has them. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlxcel {

float float_from_half(uint16_t bits);
uint16_t half_from_float(float value);  // to nearest even
/// False where a finite value became infinite.
bool halves_from_floats(const float* from, uint16_t* to, size_t count);

}  // namespace mlxcel
