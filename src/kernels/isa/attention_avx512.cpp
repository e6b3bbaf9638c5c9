// AVX-512 vectors for the attention body: 6 queries x 4 value vectors (or 2 key vectors) in 32 registers.
#include "kernels/isa/attention_call.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>

namespace mlxcel::kernels {
namespace {

#include "kernels/isa/attention_x86.h"

using Vec = __m512;
constexpr int kLanes = 16;
constexpr int kQueries = 6;
constexpr int kColumns = 4;

inline Vec v_set(float x) { return _mm512_set1_ps(x); }
inline Vec v_load(const float* p) { return _mm512_loadu_ps(p); }
inline void v_store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline Vec v_add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec v_sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec v_mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec v_div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec v_fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline float v_first(Vec x) { return _mm512_cvtss_f32(x); }
inline Vec v_abs(Vec x) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x); }
inline Vec v_copy_sign(Vec size, Vec sign) {
  return _mm512_or_ps(size, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
/// 2^n from 1.5 * 2^23 + n.
inline Vec v_power_of_two(Vec t) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127 - 0x4B400000));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23));
}
inline Vec v_at_least(Vec x, Vec least) { return _mm512_max_ps(least, x); }  // NaN stays
inline Vec v_keep_lanes(Vec x, int lo, int hi, Vec other) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 keep = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo)) &
                         _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(hi));
  return _mm512_mask_mov_ps(other, keep, x);
}
inline Vec v_load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec v_load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void v_store_f16(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void v_store_bf16(uint16_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bf16_of(_mm512_castps512_ps256(x)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), bf16_of(_mm512_extractf32x8_ps(x, 1)));
}

/// Entries of a table of 16 by 16 codes.
inline Vec v_look_up(const float* table, const uint8_t* codes) {
  const __m512i at = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  return _mm512_permutexvar_ps(at, _mm512_loadu_ps(table));
}

inline Part row_max(const Vec* s) {
  const Vec m = _mm512_max_ps(s[0], s[1]);
  return _mm256_max_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1));
}
/// The same order as with 8 lanes: (0..7 + 8..15) + (16..23 + 24..31).
inline Part row_sum(const Vec* s) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(s[0]), _mm512_extractf32x8_ps(s[0], 1));
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(s[1]), _mm512_extractf32x8_ps(s[1], 1));
  return _mm256_add_ps(a, b);
}

#include "kernels/isa/attention_body.h"

}  // namespace

const AttentionBodies kAttentionAvx512 = {append, load_queries, segment, merge, products, finish};

}  // namespace mlxcel::kernels

#else
namespace mlxcel::kernels {
const AttentionBodies kAttentionAvx512 = {};
}
#endif
