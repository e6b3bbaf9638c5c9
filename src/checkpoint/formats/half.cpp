#include "checkpoint/formats/half.h"

#include <cmath>
#include <cstring>

#include "tensor/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mlxcel {

namespace {

bool plain_halves(const float* from, uint16_t* to, size_t count) {
  bool fits = true;
  for (size_t i = 0; i < count; ++i) {
    to[i] = half_from_float(from[i]);
    fits = fits && ((to[i] & 0x7fff) != 0x7c00 || std::isinf(from[i]));
  }
  return fits;
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) bool f16c_halves(const float* from, uint16_t* to, size_t count) {
  size_t i = 0;
  __m256 largest = _mm256_setzero_ps();
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(from + i);
    largest = _mm256_max_ps(_mm256_and_ps(values, magnitude), largest);  // NaN leaves it as it is
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  const int beyond = _mm256_movemask_ps(_mm256_cmp_ps(largest, _mm256_set1_ps(65520.0f), _CMP_GE_OQ));
  // Rare: go over them again and tell infinities from values that became infinite.
  return plain_halves(beyond ? from : from + i, beyond ? to : to + i, beyond ? count : count - i);
}
#endif

}  // namespace

float float_from_half(uint16_t bits) {
  mx::float16_t half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

uint16_t half_from_float(float value) {
  const mx::float16_t half(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

bool halves_from_floats(const float* from, uint16_t* to, size_t count) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  if (fast) return f16c_halves(from, to, count);
#endif
  return plain_halves(from, to, count);
}

}  // namespace mlxcel
