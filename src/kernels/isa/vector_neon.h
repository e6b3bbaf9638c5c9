// The vector words that kernel bodies are written in, for AArch64 with dot products: 8 lanes in two
// registers. Included by *_neon.cpp and *_i8mm.cpp only; internal linkage (see dispatch.h). Meanings as in
// vector_avx2.h.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

constexpr int kLanes = 8;
struct F {
  float32x4_t a, b;
};
struct I {
  int32x4_t a, b;
};
#define MLXCEL_INLINE static inline __attribute__((always_inline))

MLXCEL_INLINE F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
MLXCEL_INLINE void store(float* p, F v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}
MLXCEL_INLINE F set1(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
MLXCEL_INLINE F zero() { return set1(0.0f); }
MLXCEL_INLINE F add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
MLXCEL_INLINE F sub(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
MLXCEL_INLINE F mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
MLXCEL_INLINE F div(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
MLXCEL_INLINE F fma(F x, F y, F z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
/// The minimum and maximum of this set keep a NaN.
MLXCEL_INLINE F clamp(F lo, F x, F hi) {
  return {vminq_f32(hi.a, vmaxq_f32(lo.a, x.a)), vminq_f32(hi.b, vmaxq_f32(lo.b, x.b))};
}
MLXCEL_INLINE F where_less(F x, F y, F yes, F no) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b)};
}
MLXCEL_INLINE F magnitude(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }

MLXCEL_INLINE I load_i(const void* p) {
  const uint8_t* const at = static_cast<const uint8_t*>(p);
  return {vreinterpretq_s32_u8(vld1q_u8(at)), vreinterpretq_s32_u8(vld1q_u8(at + 16))};
}
MLXCEL_INLINE void store_i(void* p, I v) {
  uint8_t* const at = static_cast<uint8_t*>(p);
  vst1q_u8(at, vreinterpretq_u8_s32(v.a));
  vst1q_u8(at + 16, vreinterpretq_u8_s32(v.b));
}
MLXCEL_INLINE I set1_i(int32_t v) { return {vdupq_n_s32(v), vdupq_n_s32(v)}; }
MLXCEL_INLINE I broadcast_i(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return set1_i(v);
}
MLXCEL_INLINE I zero_i() { return set1_i(0); }
MLXCEL_INLINE I add_i(I x, I y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
MLXCEL_INLINE I and_i(I x, I y) { return {vandq_s32(x.a, y.a), vandq_s32(x.b, y.b)}; }
MLXCEL_INLINE I max_i(I x, I y) { return {vmaxq_s32(x.a, y.a), vmaxq_s32(x.b, y.b)}; }

template <int N>
MLXCEL_INLINE int32x4_t right_4(int32x4_t x) {
  return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), N));
}
template <int N>
MLXCEL_INLINE I shift_right(I x) {
  return {right_4<N>(x.a), right_4<N>(x.b)};
}
template <int N>
MLXCEL_INLINE I shift_left(I x) {
  return {vshlq_n_s32(x.a, N), vshlq_n_s32(x.b, N)};
}
template <int N>
MLXCEL_INLINE int32x4_t right_halves(int32x4_t x) {
  return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(x), N));
}
template <int N>
MLXCEL_INLINE I shift_right16(I x) {
  return {right_halves<N>(x.a), right_halves<N>(x.b)};
}
template <int N>
MLXCEL_INLINE I shift_signed(I x) {
  return {vshrq_n_s32(x.a, N), vshrq_n_s32(x.b, N)};
}
MLXCEL_INLINE I load_u8(const void* p) {
  const uint16x8_t v = vmovl_u8(vld1_u8(static_cast<const uint8_t*>(p)));
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(v))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(v)))};
}
MLXCEL_INLINE int32x4_t twice_4(int8x16_t table, int32x4_t codes) {
  // The odd bytes of a code are zero: shifting the looked-up low byte up and back extends its sign.
  const int16x8_t found = vreinterpretq_s16_s8(vqtbl1q_s8(table, vreinterpretq_u8_s32(codes)));
  return vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(found, 8), 8));
}
MLXCEL_INLINE I twice_e2m1(I codes) {
  const int8x16_t table = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return {twice_4(table, codes.a), twice_4(table, codes.b)};
}
MLXCEL_INLINE int32x4_t dot2_4(int32x4_t sum, int32x4_t x, int32x4_t y) {
  const int16x8_t p = vreinterpretq_s16_s32(x), q = vreinterpretq_s16_s32(y);
  const int32x4_t low = vmull_s16(vget_low_s16(p), vget_low_s16(q)), high = vmull_high_s16(p, q);
  return vaddq_s32(sum, vpaddq_s32(low, high));
}
MLXCEL_INLINE I dot2(I sum, I x, I y) { return {dot2_4(sum.a, x.a, y.a), dot2_4(sum.b, x.b, y.b)}; }
MLXCEL_INLINE F to_float(I x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
MLXCEL_INLINE I to_int(F x) { return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b)}; }
MLXCEL_INLINE I bits(F x) { return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)}; }
MLXCEL_INLINE F from_bits(I x) { return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)}; }

MLXCEL_INLINE uint16x8_t load_halves(const void* p) {
  return vreinterpretq_u16_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
}
MLXCEL_INLINE F load_f16(const void* p) {
  const float16x8_t v = vreinterpretq_f16_u16(load_halves(p));
  return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
}
MLXCEL_INLINE F load_bf16(const void* p) {
  const uint16x8_t v = load_halves(p);
  return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(v)), 16)),
          vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(v), 16))};
}

MLXCEL_INLINE F load_part(const float* p, int n) {
  if (n == kLanes) return load(p);
  float lane[kLanes] = {};
  memcpy(lane, p, sizeof(float) * static_cast<size_t>(n));
  return load(lane);
}
MLXCEL_INLINE void store_part(float* p, F v, int n) {
  if (n == kLanes) return store(p, v);
  float lane[kLanes];
  store(lane, v);
  memcpy(p, lane, sizeof(float) * static_cast<size_t>(n));
}
MLXCEL_INLINE float sum(F v) {
  const float32x4_t four = vaddq_f32(v.a, v.b);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
MLXCEL_INLINE int32_t max_lane(I v) { return vmaxvq_s32(vmaxq_s32(v.a, v.b)); }
MLXCEL_INLINE int32_t sum_i(I v) { return vaddvq_s32(vaddq_s32(v.a, v.b)); }

/// 6 tokens by two vectors of 8 rows are 24 of the 32 registers. Both planes of 16-bit activations cost four
/// products of bytes for 8 columns, pairs eight wider ones: planes wherever a direct tile takes them.
constexpr int kMostTokens = 6, kMostDirect = 4, kMostPlanes = 4, kMostRows = 4, kMostRowsBytes = 4;
/// 4-bit codes are as good as signed bytes; 8-bit ones need the product of unsigned by signed (i8mm).
constexpr bool kBytesServe4 = true;
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr bool kBytesServe8 = true;
MLXCEL_INLINE int32x4_t dot4_4(int32x4_t sum, int32x4_t codes, int32x4_t x) {
  return vusdotq_s32(sum, vreinterpretq_u8_s32(codes), vreinterpretq_s8_s32(x));
}
#else
constexpr bool kBytesServe8 = false;
MLXCEL_INLINE int32x4_t dot4_4(int32x4_t sum, int32x4_t codes, int32x4_t x) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(x));
}
#endif
MLXCEL_INLINE I dot4(I sum, I codes, I x) {
  return {dot4_4(sum.a, codes.a, x.a), dot4_4(sum.b, codes.b, x.b)};
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
