#include "checkpoint/formats/gguf_k_quants.h"

#include <cstring>

#include "base/error.h"
#include "checkpoint/formats/half.h"

namespace mlxcel {

namespace {

float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return float_from_half(bits);
}

// In all three the codes lie in two halves of 128 elements; within a half, element 32 q + c has its low bits
// in byte c (or 32 + c), q choosing the bits. Runs of 16 share a scale.

// block_q2_K: scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin.
void q2_values(const uint8_t* block, float* values) {
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int run = 0; run < 16; ++run, values += 16) {
    const uint8_t* codes = block + 16 + 32 * (run / 8) + 16 * (run % 2);
    const int shift = run % 8 / 2 * 2;
    const float scale = d * static_cast<float>(block[run] & 15),
                minimum = dmin * static_cast<float>(block[run] >> 4);
    for (int i = 0; i < 16; ++i) values[i] = scale * static_cast<float>(codes[i] >> shift & 3) - minimum;
  }
}

// block_q3_K: hmask[32], qs[64], scales[12] (sixteen 6-bit numbers, offset 32), d.
void q3_values(const uint8_t* block, float* values) {
  const uint8_t* packed = block + 96;
  const float d = half_at(block + 108);
  for (int run = 0; run < 16; ++run, values += 16) {
    const uint8_t* high = block + 16 * (run % 2);
    const uint8_t* codes = block + 32 + 32 * (run / 8) + 16 * (run % 2);
    const int shift = run % 8 / 2 * 2, bit = run / 2;
    const int low = run < 8 ? packed[run] & 15 : packed[run - 8] >> 4;
    const float scale =
        d * static_cast<float>((low | (packed[8 + run % 4] >> (2 * (run / 4)) & 3) << 4) - 32);
    for (int i = 0; i < 16; ++i)
      values[i] = scale * static_cast<float>((codes[i] >> shift & 3) + 4 * (high[i] >> bit & 1) - 4);
  }
}

// block_q6_K: ql[128], qh[64], scales[16] (int8), d.
void q6_values(const uint8_t* block, float* values) {
  const float d = half_at(block + 208);
  for (int run = 0; run < 16; ++run, values += 16) {
    const int quarter = run % 8 / 2, column = 16 * (run % 2);
    const uint8_t* low = block + 64 * (run / 8) + 32 * (quarter % 2) + column;
    const uint8_t* high = block + 128 + 32 * (run / 8) + column;
    const int nibble = quarter / 2 * 4, pair = 2 * quarter;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + run]));
    for (int i = 0; i < 16; ++i)
      values[i] = scale * static_cast<float>(((low[i] >> nibble & 15) | (high[i] >> pair & 3) << 4) - 32);
  }
}

}  // namespace

// block_q4_K and block_q5_K begin alike: d, dmin, scales[12] (eight scales and eight minima of 6 bits).
void k_scales(const uint8_t* block, float scales[8], float biases[8]) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const uint8_t* packed = block + 4;
  for (int group = 0; group < 8; ++group) {
    int scale, minimum;
    if (group < 4) {
      scale = packed[group] & 63;
      minimum = packed[group + 4] & 63;
    } else {
      scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
      minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
    scales[group] = d * static_cast<float>(scale);
    biases[group] = -(dmin * static_cast<float>(minimum));
  }
}

// Q4_K: qs[128] after 16 bytes. Q5_K: qh[32], then qs[128]. Groups come in pairs: low nibbles, high nibbles.
void k_codes(GgmlType type, const uint8_t* block, uint8_t codes[256]) {
  const bool five = type == GgmlType::q5_k;
  const uint8_t* high = block + 16;
  const uint8_t* nibbles = block + (five ? 48 : 16);
  for (int group = 0; group < 8; ++group, codes += 32) {
    const uint8_t* from = nibbles + 32 * (group / 2);
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(from[i] >> shift & 15);
    for (int i = 0; five && i < 32; ++i)
      codes[i] = static_cast<uint8_t>(codes[i] | (high[i] >> group & 1) << 4);
  }
}

void k_values(GgmlType type, const uint8_t* block, float values[256]) {
  switch (type) {
    case GgmlType::q2_k:
      return q2_values(block, values);
    case GgmlType::q3_k:
      return q3_values(block, values);
    case GgmlType::q6_k:
      return q6_values(block, values);
    default:
      fail(ErrorKind::internal, "not a block type with groups of 16");
  }
}

}  // namespace mlxcel
