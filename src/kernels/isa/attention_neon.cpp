// AArch64 vectors for the attention body: eight lanes in two registers. 24 sums of 32 registers: 3 queries x
// 4 vectors.
#include "kernels/isa/neon.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>

namespace mlxcel::kernels {
namespace {

struct Vec {
  float32x4_t a, b;
};
constexpr int kLanes = 8;
constexpr int kQueries = 3;
constexpr int kColumns = 4;

inline Vec v_set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Vec v_load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline void v_store(float* p, Vec v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}
inline Vec v_add(Vec x, Vec y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
inline Vec v_sub(Vec x, Vec y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
inline Vec v_mul(Vec x, Vec y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
inline Vec v_div(Vec x, Vec y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
inline Vec v_fma(Vec x, Vec y, Vec z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
inline float v_first(Vec v) { return vgetq_lane_f32(v.a, 0); }
inline Vec v_abs(Vec v) { return {vabsq_f32(v.a), vabsq_f32(v.b)}; }
inline float32x4_t signed_as(float32x4_t size, float32x4_t sign) {
  return vbslq_f32(vdupq_n_u32(0x80000000u), sign, size);
}
inline Vec v_copy_sign(Vec size, Vec sign) { return {signed_as(size.a, sign.a), signed_as(size.b, sign.b)}; }
inline float32x4_t power_of_two(float32x4_t t) {
  const uint32x4_t shifted = vaddq_u32(vreinterpretq_u32_f32(t), vdupq_n_u32(127u - 0x4B400000u));
  return vreinterpretq_f32_u32(vshlq_n_u32(shifted, 23));
}
/// 2^n from 1.5 * 2^23 + n.
inline Vec v_power_of_two(Vec t) { return {power_of_two(t.a), power_of_two(t.b)}; }
inline Vec v_at_least(Vec v, Vec least) {
  return {vmaxq_f32(least.a, v.a), vmaxq_f32(least.b, v.b)};
}  // NaN stays
inline float32x4_t keep_four(float32x4_t v, int lo, int hi, float32x4_t other) {
  const int32_t numbers[4] = {0, 1, 2, 3};
  const int32x4_t lane = vld1q_s32(numbers);
  const uint32x4_t keep = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(lo)), vcltq_s32(lane, vdupq_n_s32(hi)));
  return vbslq_f32(keep, v, other);
}
inline Vec v_keep_lanes(Vec v, int lo, int hi, Vec other) {
  return {keep_four(v.a, lo, hi, other.a), keep_four(v.b, lo - 4, hi - 4, other.b)};
}
inline Vec v_load_f16(const uint16_t* p) {
  const float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
}
inline Vec v_load_bf16(const uint16_t* p) {
  const uint16x8_t v = vld1q_u16(p);
  return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(v)), 16)),
          vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(v), 16))};
}
inline void v_store_f16(uint16_t* p, Vec v) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.a), v.b)));
}
inline uint16x4_t bf16_of(float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
  const uint32x4_t number = vceqq_f32(v, v);
  return vshrn_n_u32(vbslq_u32(number, rounded, vorrq_u32(bits, vdupq_n_u32(0x400000))), 16);
}
inline void v_store_bf16(uint16_t* p, Vec v) { vst1q_u16(p, vcombine_u16(bf16_of(v.a), bf16_of(v.b))); }
inline uint16_t f16_from(float x) {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}
inline uint16_t bf16_from(float x) { return vget_lane_u16(bf16_of(vdupq_n_f32(x)), 0); }

using Part = Vec;
inline Part part_zero() { return v_set(0.0f); }
inline Vec larger_of(Vec x, Vec y) { return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b)}; }
inline Part row_max(const Vec* s) { return larger_of(larger_of(s[0], s[1]), larger_of(s[2], s[3])); }
inline Part row_sum(const Vec* s) { return v_add(v_add(s[0], s[1]), v_add(s[2], s[3])); }
/// The largest lane of each of 8 rows.
inline void across_max(const Part* p, float* out) {
  for (int q = 0; q < 8; ++q) out[q] = vmaxvq_f32(vmaxq_f32(p[q].a, p[q].b));
}
/// The sum of each of 8 rows: lanes k and k + 4, then k and k + 2, then the two left.
inline void across_sum(const Part* p, float* out) {
  for (int q = 0; q < 8; ++q) {
    const float32x4_t four = vaddq_f32(p[q].a, p[q].b);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    out[q] = vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
}

template <PageType kType>
inline void store_8(char* base, size_t index, Vec v) {
  if constexpr (kType == PageType::f32)
    v_store(reinterpret_cast<float*>(base) + index, v);
  else if constexpr (kType == PageType::f16)
    v_store_f16(reinterpret_cast<uint16_t*>(base) + index, v);
  else
    v_store_bf16(reinterpret_cast<uint16_t*>(base) + index, v);
}
/// Four rows of four to four columns.
inline void turn_four(float32x4_t* r) {
  const float32x4x2_t x = vtrnq_f32(r[0], r[1]), y = vtrnq_f32(r[2], r[3]);
  r[0] = vcombine_f32(vget_low_f32(x.val[0]), vget_low_f32(y.val[0]));
  r[1] = vcombine_f32(vget_low_f32(x.val[1]), vget_low_f32(y.val[1]));
  r[2] = vcombine_f32(vget_high_f32(x.val[0]), vget_high_f32(y.val[0]));
  r[3] = vcombine_f32(vget_high_f32(x.val[1]), vget_high_f32(y.val[1]));
}
/// Entries of a table of 16 by 8 codes.
inline Vec v_look_up(const float* table, const uint8_t* codes) {
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = table[codes[i]];
  return v_load(x);
}
/// 8 rows of 8 values at `from`, `stride` apart, as 8 columns: rows of `base` from element `to` on, `step`
/// apart.
template <PageType kType>
inline void transpose(const float* from, size_t stride, char* base, size_t to, size_t step) {
  for (size_t d = 0; d < 8; d += 4) {
    float32x4_t early[4], late[4];
    for (size_t t = 0; t < 4; ++t) {
      early[t] = vld1q_f32(from + t * stride + d);
      late[t] = vld1q_f32(from + (t + 4) * stride + d);
    }
    turn_four(early);
    turn_four(late);
    for (size_t i = 0; i < 4; ++i) store_8<kType>(base, to + (d + i) * step, {early[i], late[i]});
  }
}

#include "kernels/isa/attention_body.h"

}  // namespace

const AttentionBodies kAttentionNeon = {append, load_queries, segment, merge, products, finish};

}  // namespace mlxcel::kernels

#else
namespace mlxcel::kernels {
const AttentionBodies kAttentionNeon = {};
}
#endif
