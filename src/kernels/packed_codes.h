// 32 codes of a row as a file's bit stream has them, and as the words of one lane of a packed block
// (isa/matmul.h). Internal to packed.cpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/isa/matmul.h"

namespace mlxcel::kernels {

/// 32 codes of `bits` each from a little-endian bit stream.
inline void read_codes(const uint8_t* from, int bits, uint8_t* code) {
  uint64_t held = 0;
  int count = 0;
  for (int i = 0; i < kChunk; ++i) {
    while (count < bits) {
      held |= static_cast<uint64_t>(*from++) << count;
      count += 8;
    }
    code[i] = static_cast<uint8_t>(held & ((1u << bits) - 1u));
    held >>= bits;
    count -= bits;
  }
}

inline void write_codes(const uint8_t* code, int bits, uint8_t* to) {
  uint64_t held = 0;
  int count = 0;
  for (int i = 0; i < kChunk; ++i) {
    held |= static_cast<uint64_t>(code[i]) << count;
    count += bits;
    for (; count >= 8; count -= 8, held >>= 8) *to++ = static_cast<uint8_t>(held);
  }
}

/// The low bits of a code that lie in a lane's first words, and the high ones behind them.
struct Parts {
  int low, high;
};
inline Parts parts_of(CodeKind code) {
  switch (code) {
    case kCode2:
      return {2, 0};
    case kCode3:
      return {2, 1};
    case kCode5:
      return {4, 1};
    case kCode6:
      return {4, 2};
    default:
      return {4, 0};
  }
}
inline bool of_bytes(CodeKind code) { return code == kCode8 || code == kFloat8; }

/// The bits [from, from + bits) of 32 codes as words of pairs: code 2i in the low half of a word, 2i + 1 in
/// the high half.
inline void put_pairs(const uint8_t* code, int from, int bits, uint32_t* word) {
  const int per_word = 16 / bits;
  std::memset(word, 0, sizeof(uint32_t) * static_cast<size_t>(bits));
  for (int i = 0; i < kChunk; ++i) {
    const uint32_t part = (static_cast<uint32_t>(code[i]) >> from) & ((1u << bits) - 1u);
    word[i / 2 / per_word] |= part << (bits * (i / 2 % per_word) + 16 * (i % 2));
  }
}
inline void get_pairs(const uint32_t* word, int from, int bits, uint8_t* code) {
  const int per_word = 16 / bits;
  for (int i = 0; i < kChunk; ++i) {
    const uint32_t part = word[i / 2 / per_word] >> (bits * (i / 2 % per_word) + 16 * (i % 2));
    code[i] = static_cast<uint8_t>(code[i] | (part & ((1u << bits) - 1u)) << from);
  }
}

/// 32 codes as the words of one lane.
inline void to_words(const uint8_t* code, CodeKind kind, uint32_t* word) {
  if (of_bytes(kind)) {
    for (int q = 0; q < 8; ++q) {
      const uint8_t* c = code + 8 * (q / 2) + 2 * (q % 2);
      word[q] = static_cast<uint32_t>(c[0]) | static_cast<uint32_t>(c[4]) << 8 |
                static_cast<uint32_t>(c[1]) << 16 | static_cast<uint32_t>(c[5]) << 24;
    }
    return;
  }
  const Parts parts = parts_of(kind);
  put_pairs(code, 0, parts.low, word);
  if (parts.high) put_pairs(code, parts.low, parts.high, word + parts.low);
}

inline void from_words(const uint32_t* word, CodeKind kind, uint8_t* code) {
  if (of_bytes(kind)) {
    for (int q = 0; q < 8; ++q) {
      uint8_t* c = code + 8 * (q / 2) + 2 * (q % 2);
      c[0] = static_cast<uint8_t>(word[q]);
      c[4] = static_cast<uint8_t>(word[q] >> 8);
      c[1] = static_cast<uint8_t>(word[q] >> 16);
      c[5] = static_cast<uint8_t>(word[q] >> 24);
    }
    return;
  }
  const Parts parts = parts_of(kind);
  std::memset(code, 0, kChunk);
  get_pairs(word, 0, parts.low, code);
  if (parts.high) get_pairs(word + parts.low, parts.low, parts.high, code);
}

/// The words of 32 4-bit codes as MLX stores them: even nibbles to the low half, odd to the high half.
inline uint32_t spread_nibbles(uint32_t w) {
  const auto squeeze = [](uint32_t v) {
    v = (v | v >> 4) & 0x00ff00ffu;
    return (v | v >> 8) & 0xffffu;
  };
  return squeeze(w & 0x0f0f0f0fu) | squeeze(w >> 4 & 0x0f0f0f0fu) << 16;
}

/// Two words of 8 byte codes, as to_words() has them.
inline void byte_words(const uint8_t* codes, uint32_t* word) {
  const auto spread = [](uint32_t v) { return (v | v << 8) & 0x00ff00ffu; };
  uint32_t first, last;
  std::memcpy(&first, codes, 4);
  std::memcpy(&last, codes + 4, 4);
  word[0] = spread(first & 0xffffu) | spread(last & 0xffffu) << 8;
  word[1] = spread(first >> 16) | spread(last >> 16) << 8;
}

inline void chunk_words(const uint8_t* codes, CodeKind kind, uint32_t* word) {
  if (words_of(kind) == 4) {
    for (int q = 0; q < 4; ++q) {
      uint32_t w;
      std::memcpy(&w, codes + 4 * q, 4);
      word[q] = spread_nibbles(w);
    }
    return;
  }
  if (of_bytes(kind)) {
    for (int i = 0; i < 4; ++i) byte_words(codes + 8 * i, word + 2 * i);
    return;
  }
  uint8_t code[kChunk];
  read_codes(codes, words_of(kind), code);
  to_words(code, kind, word);
}

}  // namespace mlxcel::kernels
