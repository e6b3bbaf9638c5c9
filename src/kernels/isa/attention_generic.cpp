// The attention body in plain C++: eight lanes as an array, the same operations in the same order as the
// vector sets, so also their oracle.
#include <math.h>
#include <string.h>

#include "kernels/isa/attention_call.h"

namespace mlxcel::kernels {
namespace {

struct Vec {
  float x[8];
};
constexpr int kLanes = 8;
constexpr int kQueries = 3;
constexpr int kColumns = 4;

template <class F>
inline Vec each(F f) {
  Vec r;
  for (int i = 0; i < kLanes; ++i) r.x[i] = f(i);
  return r;
}
inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

inline Vec v_set(float x) {
  return each([&](int) { return x; });
}
inline Vec v_load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline void v_store(float* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) p[i] = v.x[i];
}
inline Vec v_add(Vec a, Vec b) {
  return each([&](int i) { return a.x[i] + b.x[i]; });
}
inline Vec v_sub(Vec a, Vec b) {
  return each([&](int i) { return a.x[i] - b.x[i]; });
}
inline Vec v_mul(Vec a, Vec b) {
  return each([&](int i) { return a.x[i] * b.x[i]; });
}
inline Vec v_div(Vec a, Vec b) {
  return each([&](int i) { return a.x[i] / b.x[i]; });
}
inline Vec v_fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return __builtin_fmaf(a.x[i], b.x[i], c.x[i]); });
}
inline float v_first(Vec v) { return v.x[0]; }
inline Vec v_abs(Vec v) {
  return each([&](int i) { return __builtin_fabsf(v.x[i]); });
}
inline Vec v_copy_sign(Vec size, Vec sign) {
  return each([&](int i) { return __builtin_copysignf(size.x[i], sign.x[i]); });
}
/// 2^n from 1.5 * 2^23 + n.
inline Vec v_power_of_two(Vec t) {
  return each([&](int i) { return from_bits((bits_of(t.x[i]) + 127u - 0x4B400000u) << 23); });
}
inline Vec v_at_least(Vec v, Vec least) {
  return each([&](int i) { return least.x[i] > v.x[i] ? least.x[i] : v.x[i]; });  // NaN stays
}
inline Vec v_keep_lanes(Vec v, int lo, int hi, Vec other) {
  return each([&](int i) { return i >= lo && i < hi ? v.x[i] : other.x[i]; });
}

inline float f32_of_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u, mantissa = h & 0x3FFu;
  if (exponent == 31) return from_bits(sign | 0x7F800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -tiny : tiny;
}
inline uint16_t f16_from(float x) {
  const uint32_t bits = bits_of(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((size >> 13) & 0x1FFu));
  if (size >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and above
  if (size < 0x38800000u) {
    // Subnormal: let the addition round to a multiple of 2^-24.
    const float shifted = from_bits(size) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const uint32_t rounded = size + 0xFFFu + ((size >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}
inline uint16_t bf16_from(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits | 0x400000u) >> 16);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
inline Vec v_load_f16(const uint16_t* p) {
  return each([&](int i) { return f32_of_f16(p[i]); });
}
inline Vec v_load_bf16(const uint16_t* p) {
  return each([&](int i) { return from_bits(static_cast<uint32_t>(p[i]) << 16); });
}
inline void v_store_f16(uint16_t* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) p[i] = f16_from(v.x[i]);
}
inline void v_store_bf16(uint16_t* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) p[i] = bf16_from(v.x[i]);
}

/// Entries of a table of 16 by 8 codes.
inline Vec v_look_up(const float* table, const uint8_t* codes) {
  return each([&](int i) { return table[codes[i]]; });
}

using Part = Vec;
inline Part part_zero() { return v_set(0.0f); }
inline Part row_max(const Vec* s) {
  return each([&](int i) {
    float m = s[0].x[i];
    for (int n = 1; n < 4; ++n) m = m > s[n].x[i] ? m : s[n].x[i];
    return m;
  });
}
inline Part row_sum(const Vec* s) { return v_add(v_add(s[0], s[1]), v_add(s[2], s[3])); }
inline void across_max(const Part* p, float* out) {
  for (int q = 0; q < 8; ++q) {
    out[q] = p[q].x[0];
    for (int i = 1; i < kLanes; ++i) out[q] = out[q] > p[q].x[i] ? out[q] : p[q].x[i];
  }
}
inline void across_sum(const Part* p, float* out) {
  for (int q = 0; q < 8; ++q) {
    const float* x = p[q].x;
    out[q] = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
  }
}

template <PageType kType>
inline void store_one(char* base, size_t index, float x);

template <PageType kType>
inline void transpose(const float* from, size_t stride, char* base, size_t to, size_t step) {
  for (size_t d = 0; d < 8; ++d)
    for (size_t t = 0; t < 8; ++t) store_one<kType>(base, to + d * step + t, from[t * stride + d]);
}

#include "kernels/isa/attention_body.h"

}  // namespace

const AttentionBodies kAttentionGeneric = {append, load_queries, segment, merge, products, finish};

}  // namespace mlxcel::kernels
