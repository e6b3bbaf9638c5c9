// The vector words that kernel bodies are written in, for AVX2 + FMA + F16C: 8 lanes.
// Included by *_avx2.cpp only; internal linkage (see dispatch.h). The other tiers define the same words.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

constexpr int kLanes = 8;
using F = __m256;
using I = __m256i;
#define MLXCEL_INLINE static inline __attribute__((always_inline))

MLXCEL_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
MLXCEL_INLINE void store(float* p, F v) { _mm256_storeu_ps(p, v); }
MLXCEL_INLINE F set1(float v) { return _mm256_set1_ps(v); }
MLXCEL_INLINE F zero() { return _mm256_setzero_ps(); }
MLXCEL_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
MLXCEL_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
MLXCEL_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
MLXCEL_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
/// a * b + c, one rounding where the set has FMA.
MLXCEL_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
/// A NaN in `x` stays.
MLXCEL_INLINE F clamp(F lo, F x, F hi) { return _mm256_min_ps(hi, _mm256_max_ps(lo, x)); }
/// Where a < b (false on NaN): yes, else no.
MLXCEL_INLINE F where_less(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
MLXCEL_INLINE F magnitude(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }

MLXCEL_INLINE I load_i(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
MLXCEL_INLINE void store_i(void* p, I v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
MLXCEL_INLINE I set1_i(int32_t v) { return _mm256_set1_epi32(v); }
MLXCEL_INLINE I broadcast_i(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
MLXCEL_INLINE I zero_i() { return _mm256_setzero_si256(); }
MLXCEL_INLINE I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
MLXCEL_INLINE I and_i(I a, I b) { return _mm256_and_si256(a, b); }
MLXCEL_INLINE I max_i(I a, I b) { return _mm256_max_epi32(a, b); }
template <int N>
MLXCEL_INLINE I shift_right(I a) {
  return _mm256_srli_epi32(a, N);
}
template <int N>
MLXCEL_INLINE I shift_left(I a) {
  return _mm256_slli_epi32(a, N);
}
template <int N>
MLXCEL_INLINE I shift_right16(I a) {
  return _mm256_srli_epi16(a, N);
}
/// Arithmetic.
template <int N>
MLXCEL_INLINE I shift_signed(I a) {
  return _mm256_srai_epi32(a, N);
}
MLXCEL_INLINE I load_u8(const void* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
/// Pairs of e2m1 codes in the low bits of int16 to twice their values.
MLXCEL_INLINE I twice_e2m1(I codes) {
  const __m256i table = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13,
                                         14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  // A high byte of zero looks up 12 too.
  return _mm256_sub_epi16(_mm256_shuffle_epi8(table, codes), _mm256_set1_epi16(12 * 256 + 12));
}
/// sum + a.lo * b.lo + a.hi * b.hi per lane, lanes as pairs of int16, all in int32.
MLXCEL_INLINE I dot2(I sum, I a, I b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
MLXCEL_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
/// Nearest, ties to even.
MLXCEL_INLINE I to_int(F a) { return _mm256_cvtps_epi32(a); }
MLXCEL_INLINE I bits(F a) { return _mm256_castps_si256(a); }
MLXCEL_INLINE F from_bits(I a) { return _mm256_castsi256_ps(a); }

MLXCEL_INLINE F load_f16(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
MLXCEL_INLINE F load_bf16(const void* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))), 16));
}
/// Nearest even.
MLXCEL_INLINE void store_f16(void* p, F v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

MLXCEL_INLINE I tail_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/// The first n lanes (0 <= n <= kLanes), zeros behind.
MLXCEL_INLINE F load_part(const float* p, int n) { return _mm256_maskload_ps(p, tail_mask(n)); }
MLXCEL_INLINE void store_part(float* p, F v, int n) { _mm256_maskstore_ps(p, tail_mask(n), v); }

/// Lanes added in one fixed order.
MLXCEL_INLINE float sum(F v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
MLXCEL_INLINE int32_t max_lane(I v) {
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
MLXCEL_INLINE int32_t sum_i(I v) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/// Low bytes of 32 codes, each from -128 to 127 but for what lies above, as 8 words of columns 0, 4, 1, 5 and
/// 2, 6, 3, 7 of 8.
MLXCEL_INLINE void quad_words(const I* codes, uint32_t* word) {
  const __m256i low = _mm256_set1_epi32(0xff);
  // Of 8 codes the lower four and the upper four stand in one half each.
  const __m256i order = _mm256_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15, 0, 4, 1, 5, 2,
                                         6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  const __m256i a = _mm256_packus_epi32(_mm256_and_si256(codes[0], low), _mm256_and_si256(codes[1], low));
  const __m256i b = _mm256_packus_epi32(_mm256_and_si256(codes[2], low), _mm256_and_si256(codes[3], low));
  // Halves: codes 0-3 of each of the four vectors, codes 4-7 of each.
  const __m256i bytes = _mm256_packus_epi16(a, b);
  const __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(word), _mm256_shuffle_epi8(ordered, order));
}
/// 32 codes of 16 bits as 16 words, two neighbours each.
MLXCEL_INLINE void pair_words(const I* codes, uint32_t* word) {
  for (int i = 0; i < 4; i += 2) {
    const __m256i both = _mm256_packs_epi32(codes[i], codes[i + 1]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(word + 4 * i),
                        _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
  }
}

/// The widest tile: 2 vectors of 8 rows by 6 tokens fill the 16 registers.
constexpr int kMostTokens = 6, kMostDirect = 6, kMostPlanes = 1, kMostRows = 18, kMostRowsBytes = 12;
/// Which code widths have a product of unsigned by signed bytes: 8 bits would saturate vpmaddubsw.
constexpr bool kBytesServe4 = true, kBytesServe8 = false;
/// Sums of 4 products a lane, as pairs of int16: eight steps of 15 * 127 * 2 fit.
MLXCEL_INLINE I dot4(I sum, I unsigned_bytes, I signed_bytes) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(unsigned_bytes, signed_bytes));
}
MLXCEL_INLINE I settle4(I sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
/// 256 * high + low, of sums like dot4's.
MLXCEL_INLINE I settle_planes(I high, I low) {
  return _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(256)), settle4(low));
}

// A token's step in a tile: the word at x, broadcast, against two vectors of weights. Written out because
// GCC 12 gathers the broadcasts of all tokens first and then spills the sums: half the speed.
MLXCEL_INLINE void step_pairs(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  I a, b;
  __asm__(
      "vpbroadcastd %6, %3\n\tvpmaddwd %4, %3, %2\n\tvpmaddwd %5, %3, %3\n\tvpaddd %2, %0, %0\n\tvpaddd %3, "
      "%1, %1"
      : "+x"(s0), "+x"(s1), "=&x"(a), "=&x"(b)
      : "x"(w0), "x"(w1), "m"(*reinterpret_cast<const uint8_t (*)[4]>(x)));
}
MLXCEL_INLINE void step_quads(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  I a, b;
  __asm__(
      "vpbroadcastd %6, %3\n\tvpmaddubsw %3, %4, %2\n\tvpmaddubsw %3, %5, %3\n\tvpaddw %2, %0, %0\n\tvpaddw "
      "%3, %1, %1"
      : "+x"(s0), "+x"(s1), "=&x"(a), "=&x"(b)
      : "x"(w0), "x"(w1), "m"(*reinterpret_cast<const uint8_t (*)[4]>(x)));
}
/// The first step: s0 and s1 need no zero before it.
MLXCEL_INLINE void start_pairs(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  __asm__("vpbroadcastd %4, %1\n\tvpmaddwd %2, %1, %0\n\tvpmaddwd %3, %1, %1"
          : "=&x"(s0), "=&x"(s1)
          : "x"(w0), "x"(w1), "m"(*reinterpret_cast<const uint8_t (*)[4]>(x)));
}
MLXCEL_INLINE void start_quads(I& s0, I& s1, I w0, I w1, const uint8_t* x) {
  __asm__("vpbroadcastd %4, %1\n\tvpmaddubsw %1, %2, %0\n\tvpmaddubsw %1, %3, %1"
          : "=&x"(s0), "=&x"(s1)
          : "x"(w0), "x"(w1), "m"(*reinterpret_cast<const uint8_t (*)[4]>(x)));
}
/// acc (two vectors) += sums * tail[0, 1] * scale, then += tail[2, 3] * total. The sums of a tile fill the
/// registers, so everything else stays in memory.
MLXCEL_INLINE void add_scaled(I s0, I s1, const float* tail, const float* scale, const float* total,
                              float* acc) {
  struct Vector {
    float lane[kLanes];
  };
  const auto* const t = reinterpret_cast<const Vector*>(tail);
  auto* const a = reinterpret_cast<Vector*>(acc);
  F b;
  __asm__(
      "vcvtdq2ps %0, %0\n\tvcvtdq2ps %1, %1\n\tvmulps %5, %0, %0\n\tvmulps %6, %1, %1\n\t"
      "vbroadcastss %9, %2\n\tvfmadd213ps %3, %2, %0\n\tvfmadd213ps %4, %2, %1\n\t"
      "vbroadcastss %10, %2\n\tvfmadd231ps %7, %2, %0\n\tvfmadd231ps %8, %2, %1\n\t"
      "vmovups %0, %3\n\tvmovups %1, %4"
      : "+x"(s0), "+x"(s1), "=&x"(b), "+m"(a[0]), "+m"(a[1])
      : "m"(t[0]), "m"(t[1]), "m"(t[2]), "m"(t[3]), "m"(*scale), "m"(*total));
}
MLXCEL_INLINE void step_floats(F& s0, F& s1, F w0, F w1, const float* x) {
  F a;
  __asm__("vbroadcastss %5, %2\n\tvfmadd231ps %2, %3, %0\n\tvfmadd231ps %2, %4, %1"
          : "+x"(s0), "+x"(s1), "=&x"(a)
          : "x"(w0), "x"(w1), "m"(*x));
}

}  // namespace
