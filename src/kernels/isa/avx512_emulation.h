// For tests on machines without AVX-512: the intrinsics that vector_avx512.h names, by the compiler's vector
// extension, so that the 16-lane bodies run everywhere. Meanings from Intel's intrinsics guide.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <mlx/types/half_types.h>

typedef float __m512 __attribute__((vector_size(64)));
typedef int32_t __m512i __attribute__((vector_size(64)));
typedef int32_t __m256i __attribute__((vector_size(32)));
typedef int32_t __m128i __attribute__((vector_size(16)));
using __mmask16 = uint16_t;
enum { _CMP_LT_OQ = 17, _MM_FROUND_TO_NEAREST_INT = 0 };

namespace avx512_emulation {
template <class To, class From>
To reinterpret(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
struct Lanes16 {
  uint16_t v[32];
};
struct Bytes {
  uint8_t v[64];
};
}  // namespace avx512_emulation

inline __m512 _mm512_loadu_ps(const void* p) {
  __m512 v;
  std::memcpy(&v, p, 64);
  return v;
}
inline void _mm512_storeu_ps(void* p, __m512 v) { std::memcpy(p, &v, 64); }
inline __m512 _mm512_set1_ps(float f) { return __m512{} + f; }
inline __m512 _mm512_setzero_ps() { return __m512{}; }
inline __m512 _mm512_add_ps(__m512 a, __m512 b) { return a + b; }
inline __m512 _mm512_sub_ps(__m512 a, __m512 b) { return a - b; }
inline __m512 _mm512_mul_ps(__m512 a, __m512 b) { return a * b; }
inline __m512 _mm512_div_ps(__m512 a, __m512 b) { return a / b; }
inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  for (int i = 0; i < 16; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
}
// Of a NaN and another the second operand is the result.
inline __m512 _mm512_min_ps(__m512 a, __m512 b) { return a < b ? a : b; }
inline __m512 _mm512_max_ps(__m512 a, __m512 b) { return a > b ? a : b; }
inline __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int) {
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<unsigned>(a[i] < b[i]) << i;
  return static_cast<__mmask16>(mask);
}
inline __m512 _mm512_mask_blend_ps(__mmask16 k, __m512 a, __m512 b) {
  for (int i = 0; i < 16; ++i) a[i] = k >> i & 1 ? b[i] : a[i];
  return a;
}
inline __m512i _mm512_loadu_si512(const void* p) {
  __m512i v;
  std::memcpy(&v, p, 64);
  return v;
}
inline void _mm512_storeu_si512(void* p, __m512i v) { std::memcpy(p, &v, 64); }
inline __m512i _mm512_set1_epi32(int32_t i) { return __m512i{} + i; }
inline __m512i _mm512_setzero_si512() { return __m512i{}; }
inline __m512i _mm512_add_epi32(__m512i a, __m512i b) { return a + b; }
inline __m512i _mm512_and_si512(__m512i a, __m512i b) { return a & b; }
inline __m512i _mm512_max_epi32(__m512i a, __m512i b) { return a > b ? a : b; }
inline __m512i _mm512_srli_epi32(__m512i a, unsigned n) {
  for (int i = 0; i < 16; ++i) a[i] = static_cast<int32_t>(static_cast<uint32_t>(a[i]) >> n);
  return a;
}
inline __m512i _mm512_slli_epi32(__m512i a, unsigned n) {
  for (int i = 0; i < 16; ++i) a[i] = static_cast<int32_t>(static_cast<uint32_t>(a[i]) << n);
  return a;
}
inline __m512i _mm512_srli_epi16(__m512i a, unsigned n) {
  auto lanes = avx512_emulation::reinterpret<avx512_emulation::Lanes16>(a);
  for (auto& lane : lanes.v) lane = static_cast<uint16_t>(lane >> n);
  return avx512_emulation::reinterpret<__m512i>(lanes);
}
inline __m512i _mm512_srai_epi32(__m512i a, unsigned n) { return a >> static_cast<int>(n); }
inline __m512i _mm512_set1_epi16(int16_t v) {
  avx512_emulation::Lanes16 lanes;
  for (auto& lane : lanes.v) lane = static_cast<uint16_t>(v);
  return avx512_emulation::reinterpret<__m512i>(lanes);
}
inline __m512i _mm512_set4_epi32(int d, int c, int b, int a) {
  __m512i r{};
  for (int i = 0; i < 16; i += 4) {
    r[i] = a;
    r[i + 1] = b;
    r[i + 2] = c;
    r[i + 3] = d;
  }
  return r;
}
inline __m512i _mm512_sub_epi16(__m512i a, __m512i b) {
  auto x = avx512_emulation::reinterpret<avx512_emulation::Lanes16>(a);
  const auto y = avx512_emulation::reinterpret<avx512_emulation::Lanes16>(b);
  for (int i = 0; i < 32; ++i) x.v[i] = static_cast<uint16_t>(x.v[i] - y.v[i]);
  return avx512_emulation::reinterpret<__m512i>(x);
}
inline __m512i _mm512_shuffle_epi8(__m512i a, __m512i b) {
  const auto x = avx512_emulation::reinterpret<avx512_emulation::Bytes>(a),
             y = avx512_emulation::reinterpret<avx512_emulation::Bytes>(b);
  avx512_emulation::Bytes r;
  for (int i = 0; i < 64; ++i) r.v[i] = y.v[i] & 0x80 ? 0 : x.v[i / 16 * 16 + (y.v[i] & 15)];
  return avx512_emulation::reinterpret<__m512i>(r);
}
inline __m128i _mm_loadu_si128(const __m128i* p) {
  __m128i v;
  std::memcpy(&v, p, 16);
  return v;
}
inline __m512i _mm512_cvtepu8_epi32(__m128i a) {
  __m512i r{};
  uint8_t byte[16];
  std::memcpy(byte, &a, 16);
  for (int i = 0; i < 16; ++i) r[i] = byte[i];
  return r;
}
inline __m512i _mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b) {
  const auto x = avx512_emulation::reinterpret<avx512_emulation::Lanes16>(a),
             y = avx512_emulation::reinterpret<avx512_emulation::Lanes16>(b);
  for (int i = 0; i < 32; ++i) sum[i / 2] += static_cast<int16_t>(x.v[i]) * static_cast<int16_t>(y.v[i]);
  return sum;
}
inline __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
  const auto x = avx512_emulation::reinterpret<avx512_emulation::Bytes>(a),
             y = avx512_emulation::reinterpret<avx512_emulation::Bytes>(b);
  for (int i = 0; i < 64; ++i) sum[i / 4] += static_cast<int>(x.v[i]) * static_cast<int8_t>(y.v[i]);
  return sum;
}
inline __m512 _mm512_cvtepi32_ps(__m512i a) { return __builtin_convertvector(a, __m512); }
inline __m512i _mm512_cvtps_epi32(__m512 a) {
  __m512i r{};
  for (int i = 0; i < 16; ++i) {
    const float nearest = std::nearbyint(a[i]);
    r[i] = nearest >= -2147483648.0f && nearest < 2147483648.0f ? static_cast<int32_t>(nearest) : INT32_MIN;
  }
  return r;
}
inline __m512i _mm512_castps_si512(__m512 a) { return avx512_emulation::reinterpret<__m512i>(a); }
inline __m512 _mm512_castsi512_ps(__m512i a) { return avx512_emulation::reinterpret<__m512>(a); }
inline __m256i _mm256_loadu_si256(const __m256i* p) {
  __m256i v;
  std::memcpy(&v, p, 32);
  return v;
}
inline void _mm256_storeu_si256(__m256i* p, __m256i v) { std::memcpy(p, &v, 32); }
inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
  __m512i r{};
  uint16_t half[16];
  std::memcpy(half, &a, 32);
  for (int i = 0; i < 16; ++i) r[i] = half[i];
  return r;
}
inline __m512 _mm512_cvtph_ps(__m256i a) {
  __m512 r{};
  mlx::core::float16_t half[16];
  std::memcpy(half, &a, 32);
  for (int i = 0; i < 16; ++i) r[i] = static_cast<float>(half[i]);
  return r;
}
inline __m256i _mm512_cvtps_ph(__m512 a, int) {
  __m256i r;
  mlx::core::float16_t half[16];
  for (int i = 0; i < 16; ++i) half[i] = mlx::core::float16_t(a[i]);
  std::memcpy(&r, half, 32);
  return r;
}
inline __m512 _mm512_maskz_loadu_ps(__mmask16 k, const void* p) {
  __m512 r{};
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) {
      float lane;
      std::memcpy(&lane, static_cast<const char*>(p) + 4 * i, 4);
      r[i] = lane;
    }
  return r;
}
inline void _mm512_mask_storeu_ps(void* p, __mmask16 k, __m512 a) {
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) {
      const float lane = a[i];
      std::memcpy(static_cast<char*>(p) + 4 * i, &lane, 4);
    }
}
