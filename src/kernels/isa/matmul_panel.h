// Activations as panels (isa/matmul.h has their layout), over the vector words of whichever tier was included
// before. Part of matmul_body.h; internal linkage.
#pragma once

#include "kernels/isa/matmul_codes.h"

namespace {

/// The scale of 32 values at x, and 1 / scale. Groups below 1e-33 count as zero; a NaN gives scale NaN.
MLXCEL_INLINE float chunk_scale(const float* x, int limit, float* inverse) {
  I most = zero_i();
  for (int i = 0; i < kChunk; i += kLanes) most = max_i(most, and_i(bits(load(x + i)), set1_i(0x7fffffff)));
  const int32_t top = max_lane(most);  // bit patterns of non-negative floats order as integers, NaN on top
  float value;
  memcpy(&value, &top, 4);
  if (value < 1e-33f) {
    *inverse = 0.0f;
    return 0.0f;
  }
  *inverse = static_cast<float>(limit) / value;
  return value / static_cast<float>(limit);
}

/// 32 values as integers in [-limit, limit], and their sum.
MLXCEL_INLINE int32_t chunk_codes(const float* x, float inverse, I* code) {
  I total = zero_i();
  for (int i = 0; i < kChunk / kLanes; ++i) {
    code[i] = to_int(mul(load(x + i * kLanes), set1(inverse)));
    total = add_i(total, code[i]);
  }
  return sum_i(total);
}

/// A tile's panel: `kWords` words of each chunk and token, as words_of(codes, word) gives them, then scales.
template <int kWords, class Words>
MLXCEL_INLINE void quantize_chunks(const float* const* x, int count, int first, int last, int limit,
                                   uint8_t* panel, const Words& words_of_codes) {
  const ptrdiff_t step = 4 * count;
  uint8_t* record = panel + static_cast<ptrdiff_t>(first) * step * (kWords + 2);
  for (int chunk = first; chunk < last; ++chunk, record += step * (kWords + 2))
    for (int t = 0; t < count; ++t) {
      float inverse;
      I code[kChunk / kLanes];
      uint32_t word[kWords];
      const float* const from = x[t] + static_cast<ptrdiff_t>(chunk) * kChunk;
      const float scale = chunk_scale(from, limit, &inverse);
      const float tail = scale * static_cast<float>(chunk_codes(from, inverse, code));
      words_of_codes(code, word);
      uint8_t* to = record + 4 * t;
      for (int w = 0; w < kWords; ++w, to += step) memcpy(to, word + w, 4);
      memcpy(to, &scale, 4);
      memcpy(to + step, &tail, 4);
    }
}

void quantize(const float* const* x, int count, int first, int last, int limit, uint8_t* panel) {
  quantize_chunks<kPairs>(x, count, first, last, limit, panel,
                          [](const I* code, uint32_t* word)
                              __attribute__((always_inline)) { pair_words(code, word); });
}

void quantize_bytes(const float* const* x, int count, int first, int last, uint8_t* panel) {
  quantize_chunks<kQuads>(x, count, first, last, 127, panel,
                          [](const I* code, uint32_t* word)
                              __attribute__((always_inline)) { quad_words(code, word); });
}

/// The codes of quantize() as two planes of int8, 256 * high + low, for products that are byte by byte.
void quantize_planes(const float* const* x, int count, int first, int last, uint8_t* panel) {
  quantize_chunks<2 * kQuads>(x, count, first, last, mlxcel::kernels::kLimit16, panel,
                              [](const I* code, uint32_t* word) __attribute__((always_inline)) {
                                I high[kChunk / kLanes];
                                for (int i = 0; i < kChunk / kLanes; ++i)
                                  high[i] = shift_signed<8>(add_i(code[i], set1_i(128)));
                                quad_words(high, word);
                                quad_words(code, word + kQuads);
                              });
}

void transpose(const float* const* x, int count, int first, int last, float* panel) {
  for (int column = first; column < last; ++column)
    for (int t = 0; t < count; ++t) panel[static_cast<ptrdiff_t>(column) * count + t] = x[t][column];
}

}  // namespace
