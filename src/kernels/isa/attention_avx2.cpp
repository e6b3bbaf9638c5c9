// AVX2 + FMA + F16C vectors for the attention body. 12 accumulators of 16 registers: 3 queries x 4 vectors.
#include "kernels/isa/attention_call.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

namespace mlxcel::kernels {
namespace {

#include "kernels/isa/attention_x86.h"

using Vec = __m256;
constexpr int kLanes = 8;
constexpr int kQueries = 3;
constexpr int kColumns = 4;

inline Vec v_set(float x) { return _mm256_set1_ps(x); }
inline Vec v_load(const float* p) { return _mm256_loadu_ps(p); }
inline void v_store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
inline Vec v_add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec v_sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec v_mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec v_div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec v_fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline float v_first(Vec x) { return _mm256_cvtss_f32(x); }
inline Vec v_abs(Vec x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
inline Vec v_copy_sign(Vec size, Vec sign) {
  return _mm256_or_ps(size, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
/// 2^n from 1.5 * 2^23 + n.
inline Vec v_power_of_two(Vec t) {
  const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127 - 0x4B400000));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
inline Vec v_at_least(Vec x, Vec least) { return _mm256_max_ps(least, x); }  // NaN stays
inline Vec v_keep_lanes(Vec x, int lo, int hi, Vec other) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i keep = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane),
                                           _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(keep));
}
inline Vec v_load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec v_load_bf16(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline void v_store_f16(uint16_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void v_store_bf16(uint16_t* p, Vec x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bf16_of(x)); }

/// Entries of a table of 16 by 8 codes.
inline Vec v_look_up(const float* table, const uint8_t* codes) {
  const __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), at);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), at);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}

inline Part row_max(const Vec* s) {
  return _mm256_max_ps(_mm256_max_ps(s[0], s[1]), _mm256_max_ps(s[2], s[3]));
}
inline Part row_sum(const Vec* s) {
  return _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3]));
}

#include "kernels/isa/attention_body.h"

}  // namespace

const AttentionBodies kAttentionAvx2 = {append, load_queries, segment, merge, products, finish};

}  // namespace mlxcel::kernels

#else
namespace mlxcel::kernels {
const AttentionBodies kAttentionAvx2 = {};
}
#endif
