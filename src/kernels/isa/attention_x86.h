// 256-bit pieces that the AVX2 and AVX-512 attention units share; included inside their anonymous namespaces.
// Not a header of its own: no pragma once, no includes.

inline __m128i bf16_of(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  const __m256i half = _mm256_srli_epi32(rounded, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
inline uint16_t f16_from(float x) { return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
inline uint16_t bf16_from(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(bf16_of(_mm256_set1_ps(x)), 0));
}

template <PageType kType>
inline void store_8(char* base, size_t index, __m256 x) {
  if constexpr (kType == PageType::f32) return _mm256_storeu_ps(reinterpret_cast<float*>(base) + index, x);
  const __m128i narrow = kType == PageType::f16 ? _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT) : bf16_of(x);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(reinterpret_cast<uint16_t*>(base) + index), narrow);
}

/// 8 rows of 8 values at `from`, `stride` apart, as 8 columns: rows of `base` from element `to` on, `step`
/// apart.
template <PageType kType>
inline void transpose(const float* from, size_t stride, char* base, size_t to, size_t step) {
  __m256 r[8];
  for (size_t t = 0; t < 8; ++t) r[t] = _mm256_loadu_ps(from + t * stride);
  const __m256 a0 = _mm256_unpacklo_ps(r[0], r[1]), a1 = _mm256_unpackhi_ps(r[0], r[1]);
  const __m256 a2 = _mm256_unpacklo_ps(r[2], r[3]), a3 = _mm256_unpackhi_ps(r[2], r[3]);
  const __m256 a4 = _mm256_unpacklo_ps(r[4], r[5]), a5 = _mm256_unpackhi_ps(r[4], r[5]);
  const __m256 a6 = _mm256_unpacklo_ps(r[6], r[7]), a7 = _mm256_unpackhi_ps(r[6], r[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xEE);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xEE);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xEE);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xEE);
  store_8<kType>(base, to + 0 * step, _mm256_permute2f128_ps(b0, b4, 0x20));
  store_8<kType>(base, to + 1 * step, _mm256_permute2f128_ps(b1, b5, 0x20));
  store_8<kType>(base, to + 2 * step, _mm256_permute2f128_ps(b2, b6, 0x20));
  store_8<kType>(base, to + 3 * step, _mm256_permute2f128_ps(b3, b7, 0x20));
  store_8<kType>(base, to + 4 * step, _mm256_permute2f128_ps(b0, b4, 0x31));
  store_8<kType>(base, to + 5 * step, _mm256_permute2f128_ps(b1, b5, 0x31));
  store_8<kType>(base, to + 6 * step, _mm256_permute2f128_ps(b2, b6, 0x31));
  store_8<kType>(base, to + 7 * step, _mm256_permute2f128_ps(b3, b7, 0x31));
}

using Part = __m256;
inline Part part_zero() { return _mm256_setzero_ps(); }
/// The largest lane of each of 8 rows.
inline void across_max(const Part* p, float* out) {
  __m256 h[4];
  for (int i = 0; i < 4; ++i)
    h[i] = _mm256_max_ps(_mm256_permute2f128_ps(p[i], p[i + 4], 0x20),
                         _mm256_permute2f128_ps(p[i], p[i + 4], 0x31));
  const __m256 a = _mm256_max_ps(_mm256_shuffle_ps(h[0], h[1], 0x44), _mm256_shuffle_ps(h[0], h[1], 0xEE));
  const __m256 b = _mm256_max_ps(_mm256_shuffle_ps(h[2], h[3], 0x44), _mm256_shuffle_ps(h[2], h[3], 0xEE));
  _mm256_storeu_ps(out, _mm256_max_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD)));
}
/// The sum of each of 8 rows: lanes k and k + 4, then k and k + 2, then the two left.
inline void across_sum(const Part* p, float* out) {
  __m256 h[4];
  for (int i = 0; i < 4; ++i)
    h[i] = _mm256_add_ps(_mm256_permute2f128_ps(p[i], p[i + 4], 0x20),
                         _mm256_permute2f128_ps(p[i], p[i + 4], 0x31));
  const __m256 a = _mm256_add_ps(_mm256_shuffle_ps(h[0], h[1], 0x44), _mm256_shuffle_ps(h[0], h[1], 0xEE));
  const __m256 b = _mm256_add_ps(_mm256_shuffle_ps(h[2], h[3], 0x44), _mm256_shuffle_ps(h[2], h[3], 0xEE));
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD)));
}
