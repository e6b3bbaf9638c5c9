// The vector words that kernel bodies are written in, for any machine: 8 lanes by the compiler's vector
// extension. No FMA: a product and a sum round apart. Included by *_generic.cpp only; internal linkage
// (see dispatch.h). Meanings as in vector_avx2.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

constexpr int kLanes = 8;
typedef float F __attribute__((vector_size(32)));
typedef int32_t I __attribute__((vector_size(32)));
typedef uint32_t U __attribute__((vector_size(32)));
typedef uint16_t H __attribute__((vector_size(16)));
typedef uint16_t W __attribute__((vector_size(32)));
#define MLXCEL_INLINE static inline __attribute__((always_inline))

MLXCEL_INLINE F load(const float* p) {
  F v;
  memcpy(&v, p, sizeof v);
  return v;
}
MLXCEL_INLINE void store(float* p, F v) { memcpy(p, &v, sizeof v); }
MLXCEL_INLINE F set1(float v) { return F{v, v, v, v, v, v, v, v}; }
MLXCEL_INLINE F zero() { return F{}; }
MLXCEL_INLINE F add(F a, F b) { return a + b; }
MLXCEL_INLINE F sub(F a, F b) { return a - b; }
MLXCEL_INLINE F mul(F a, F b) { return a * b; }
MLXCEL_INLINE F div(F a, F b) { return a / b; }
MLXCEL_INLINE F fma(F a, F b, F c) { return a * b + c; }
MLXCEL_INLINE F where_less(F a, F b, F yes, F no) { return a < b ? yes : no; }
MLXCEL_INLINE F clamp(F lo, F x, F hi) { return where_less(hi, x, hi, where_less(x, lo, lo, x)); }

MLXCEL_INLINE I load_i(const void* p) {
  I v;
  memcpy(&v, p, sizeof v);
  return v;
}
MLXCEL_INLINE void store_i(void* p, I v) { memcpy(p, &v, sizeof v); }
MLXCEL_INLINE I set1_i(int32_t v) { return I{v, v, v, v, v, v, v, v}; }
MLXCEL_INLINE I broadcast_i(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return set1_i(v);
}
MLXCEL_INLINE I zero_i() { return I{}; }
// Wraps, as the instructions of the other tiers do.
MLXCEL_INLINE I add_i(I a, I b) { return (I)((U)a + (U)b); }
MLXCEL_INLINE I and_i(I a, I b) { return a & b; }
MLXCEL_INLINE I max_i(I a, I b) { return a > b ? a : b; }
template <int N>
MLXCEL_INLINE I shift_right(I a) {
  return (I)((U)a >> N);
}
template <int N>
MLXCEL_INLINE I shift_left(I a) {
  return (I)((U)a << N);
}
template <int N>
MLXCEL_INLINE I shift_right16(I a) {
  return (I)((W)a >> N);
}
template <int N>
MLXCEL_INLINE I shift_signed(I a) {
  return a >> N;
}
MLXCEL_INLINE I load_u8(const void* p) {
  const uint8_t* const b = static_cast<const uint8_t*>(p);
  return I{b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]};
}
MLXCEL_INLINE I twice_e2m1(I codes) {
  constexpr int16_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  int16_t half[2 * kLanes];
  memcpy(half, &codes, sizeof half);
  for (int16_t& h : half) h = kTwice[h & 15];
  memcpy(&codes, half, sizeof half);
  return codes;
}
MLXCEL_INLINE I dot2(I sum, I a, I b) {
  const I low = (I)((U)(((I)((U)a << 16)) >> 16) * (U)(((I)((U)b << 16)) >> 16));
  const I high = (I)((U)(a >> 16) * (U)(b >> 16));
  return add_i(add_i(sum, low), high);
}
MLXCEL_INLINE F to_float(I a) { return __builtin_convertvector(a, F); }
MLXCEL_INLINE I bits(F a) { return (I)a; }
MLXCEL_INLINE F from_bits(I a) { return (F)a; }
MLXCEL_INLINE F magnitude(F a) { return from_bits(bits(a) & 0x7fffffff); }
/// For |a| < 2^22: adding 1.5 * 2^23 leaves the nearest integer in the low bits. NaN gives any integer.
MLXCEL_INLINE I to_int(F a) {
  const F shifter = set1(12582912.0f);
  return (I)((U)bits(a + shifter) - (U)bits(shifter));
}

MLXCEL_INLINE I widen(const void* p) {
  H v;
  memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, I);
}
MLXCEL_INLINE F load_f16(const void* p) {
  const I half = widen(p);
  // Exponents differ by 112: multiplying by 2^112 also settles denormals; 31 means infinity or NaN.
  const F value = from_bits((half & 0x7fff) << 13) * set1(5192296858534827628530496329220096.0f);
  const I special = ((half & 0x7c00) == 0x7c00) & 0x7f800000;
  return from_bits(bits(value) | special | ((half & 0x8000) << 16));
}
MLXCEL_INLINE F load_bf16(const void* p) { return from_bits(widen(p) << 16); }

MLXCEL_INLINE F load_part(const float* p, int n) {
  float lane[kLanes] = {};
  memcpy(lane, p, sizeof(float) * static_cast<size_t>(n));
  return load(lane);
}
MLXCEL_INLINE void store_part(float* p, F v, int n) {
  float lane[kLanes];
  store(lane, v);
  memcpy(p, lane, sizeof(float) * static_cast<size_t>(n));
}
MLXCEL_INLINE float sum(F v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
MLXCEL_INLINE int32_t max_lane(I v) {
  int32_t most = v[0];
  for (int i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
  return most;
}
MLXCEL_INLINE int32_t sum_i(I v) {
  const U u = (U)v;
  return (int32_t)(u[0] + u[1] + u[2] + u[3] + u[4] + u[5] + u[6] + u[7]);
}

constexpr int kMostTokens = 4, kMostDirect = 4, kMostPlanes = 0, kMostRows = 4, kMostRowsBytes = 4;
constexpr bool kBytesServe4 = false, kBytesServe8 = false;
MLXCEL_INLINE I dot4(I sum, I, I) { return sum; }
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
