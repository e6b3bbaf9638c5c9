// 32 codes as the words of an activation panel (matmul.h), one by one: for tiers without a way of their own.
// Included by their vector words; internal linkage.
#pragma once

namespace {

/// Low bytes of 32 codes as 8 words, each of columns 0, 4, 1, 5 or 2, 6, 3, 7 of 8.
MLXCEL_INLINE void quad_words(const I* codes, uint32_t* word) {
  int32_t code[32];
  for (int i = 0; i < 32 / kLanes; ++i) store_i(code + i * kLanes, codes[i]);
  const auto byte = [&](int i) { return static_cast<uint32_t>(code[i]) & 0xffu; };
  for (int q = 0; q < 8; ++q) {
    const int c = 8 * (q / 2) + 2 * (q % 2);
    word[q] = byte(c) | byte(c + 4) << 8 | byte(c + 1) << 16 | byte(c + 5) << 24;
  }
}

/// 32 codes as 16 words, two neighbours each.
MLXCEL_INLINE void pair_words(const I* codes, uint32_t* word) {
  int32_t code[32];
  for (int i = 0; i < 32 / kLanes; ++i) store_i(code + i * kLanes, codes[i]);
  for (int p = 0; p < 16; ++p)
    word[p] = (static_cast<uint32_t>(code[2 * p]) & 0xffffu) | static_cast<uint32_t>(code[2 * p + 1]) << 16;
}

}  // namespace
