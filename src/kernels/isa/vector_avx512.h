// The vector words that kernel bodies are written in, for AVX-512 (F, BW, VL, DQ, VNNI): 16 lanes.
// Included by *_avx512.cpp only; internal linkage (see dispatch.h). Meanings as in vector_avx2.h.
#pragma once

#ifndef MLXCEL_EMULATE_AVX512
#include <immintrin.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

constexpr int kLanes = 16;
using F = __m512;
using I = __m512i;
#define MLXCEL_INLINE static inline __attribute__((always_inline))

MLXCEL_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
MLXCEL_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
MLXCEL_INLINE F set1(float v) { return _mm512_set1_ps(v); }
MLXCEL_INLINE F zero() { return _mm512_setzero_ps(); }
MLXCEL_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
MLXCEL_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
MLXCEL_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
MLXCEL_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
MLXCEL_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
MLXCEL_INLINE F clamp(F lo, F x, F hi) { return _mm512_min_ps(hi, _mm512_max_ps(lo, x)); }
MLXCEL_INLINE F where_less(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

MLXCEL_INLINE I load_i(const void* p) { return _mm512_loadu_si512(p); }
MLXCEL_INLINE void store_i(void* p, I v) { _mm512_storeu_si512(p, v); }
MLXCEL_INLINE I set1_i(int32_t v) { return _mm512_set1_epi32(v); }
MLXCEL_INLINE I broadcast_i(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
MLXCEL_INLINE I zero_i() { return _mm512_setzero_si512(); }
MLXCEL_INLINE I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
MLXCEL_INLINE I and_i(I a, I b) { return _mm512_and_si512(a, b); }
MLXCEL_INLINE I max_i(I a, I b) { return _mm512_max_epi32(a, b); }
template <int N>
MLXCEL_INLINE I shift_right(I a) {
  return _mm512_srli_epi32(a, N);
}
template <int N>
MLXCEL_INLINE I shift_left(I a) {
  return _mm512_slli_epi32(a, N);
}
template <int N>
MLXCEL_INLINE I shift_right16(I a) {
  return _mm512_srli_epi16(a, N);
}
template <int N>
MLXCEL_INLINE I shift_signed(I a) {
  return _mm512_srai_epi32(a, N);
}
MLXCEL_INLINE I load_u8(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
MLXCEL_INLINE I twice_e2m1(I codes) {
  const I table = _mm512_set4_epi32(0x00040608, 0x090a0b0c, 0x18141210, 0x0f0e0d0c);
  return _mm512_sub_epi16(_mm512_shuffle_epi8(table, codes), _mm512_set1_epi16(12 * 256 + 12));
}
MLXCEL_INLINE I dot2(I sum, I a, I b) { return _mm512_dpwssd_epi32(sum, a, b); }
MLXCEL_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
MLXCEL_INLINE I to_int(F a) { return _mm512_cvtps_epi32(a); }
MLXCEL_INLINE I bits(F a) { return _mm512_castps_si512(a); }
MLXCEL_INLINE F from_bits(I a) { return _mm512_castsi512_ps(a); }
MLXCEL_INLINE F magnitude(F a) { return from_bits(and_i(bits(a), set1_i(0x7fffffff))); }

MLXCEL_INLINE F load_f16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
MLXCEL_INLINE F load_bf16(const void* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
}
MLXCEL_INLINE void store_f16(void* p, F v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

MLXCEL_INLINE __mmask16 tail_mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
MLXCEL_INLINE F load_part(const float* p, int n) { return _mm512_maskz_loadu_ps(tail_mask(n), p); }
MLXCEL_INLINE void store_part(float* p, F v, int n) { _mm512_mask_storeu_ps(p, tail_mask(n), v); }

// Through memory: rare, and the order is plain.
MLXCEL_INLINE float sum(F v) {
  float lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}
MLXCEL_INLINE int32_t max_lane(I v) {
  int32_t lane[kLanes];
  store_i(lane, v);
  for (int i = 1; i < kLanes; ++i) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
  return lane[0];
}
MLXCEL_INLINE int32_t sum_i(I v) {
  int32_t lane[kLanes];
  store_i(lane, v);
  for (int i = 1; i < kLanes; ++i) lane[0] += lane[i];
  return lane[0];
}

constexpr int kMostTokens = 8, kMostDirect = 6, kMostPlanes = 0, kMostRows = 6, kMostRowsBytes = 6;
constexpr bool kBytesServe4 = true, kBytesServe8 = true;
MLXCEL_INLINE I dot4(I sum, I unsigned_bytes, I signed_bytes) {
  return _mm512_dpbusd_epi32(sum, unsigned_bytes, signed_bytes);
}
MLXCEL_INLINE I settle4(I sum) { return sum; }

MLXCEL_INLINE I settle_planes(I high, I low) { return add_i(shift_left<8>(high), low); }

MLXCEL_INLINE void step_pairs(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  const I v = broadcast_i(x);
  s0 = dot2(s0, w0, v);
  s1 = dot2(s1, w1, v);
}
MLXCEL_INLINE void step_quads(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  const I v = broadcast_i(x);
  s0 = dot4(s0, w0, v);
  s1 = dot4(s1, w1, v);
}
MLXCEL_INLINE void start_pairs(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  s0 = s1 = zero_i();
  step_pairs(s0, s1, w0, w1, x);
}
MLXCEL_INLINE void start_quads(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  s0 = s1 = zero_i();
  step_quads(s0, s1, w0, w1, x);
}
MLXCEL_INLINE void add_scaled(I s0, I s1, const float* tail, const float* scale, const float* total,
                              float* acc) {
  const F v0 = mul(to_float(s0), load(tail)), v1 = mul(to_float(s1), load(tail + kLanes));
  const F by = set1(*scale), sum = set1(*total);
  store(acc, fma(load(tail + 2 * kLanes), sum, fma(v0, by, load(acc))));
  store(acc + kLanes, fma(load(tail + 3 * kLanes), sum, fma(v1, by, load(acc + kLanes))));
}
MLXCEL_INLINE void step_floats(F& s0, F& s1, F w0, F w1, const float* x) {
  const F v = set1(*x);
  s0 = fma(w0, v, s0);
  s1 = fma(w1, v, s1);
}

}  // namespace

#include "kernels/isa/code_words.h"
