#include "checkpoint/formats/gguf_k_quants.h"

#include <cstring>

#include "base/error.h"

namespace mlxcel {

namespace {

float half_at(const uint8_t* p) {
  mx::float16_t value;
  std::memcpy(&value, p, 2);
  return static_cast<float>(value);
}

// block_q2_K: scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin.
void q2_values(const uint8_t* block, float* values) {
  const uint8_t* scales = block;
  const uint8_t* codes = block + 16;
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2;
    const int code = codes[32 * half + i % 32] >> shift & 3;
    const uint8_t side = scales[i / 16];
    values[i] = d * static_cast<float>(side & 15) * static_cast<float>(code) - dmin * static_cast<float>(side >> 4);
  }
}

// block_q3_K: hmask[32], qs[64], scales[12] (sixteen 6-bit numbers, offset 32), d.
void q3_values(const uint8_t* block, float* values) {
  const uint8_t* high = block;
  const uint8_t* codes = block + 32;
  const uint8_t* packed = block + 96;
  const float d = half_at(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2, group = i / 16;
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int scale = (low | (packed[8 + group % 4] >> (2 * (group / 4)) & 3) << 4) - 32;
    const int bit = high[i % 32] >> (i / 32) & 1;
    const int code = (codes[32 * half + i % 32] >> shift & 3) - (bit ? 0 : 4);
    values[i] = d * static_cast<float>(scale) * static_cast<float>(code);
  }
}

// block_q6_K: ql[128], qh[64], scales[16] (int8), d.
void q6_values(const uint8_t* block, float* values) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const uint8_t* scales = block + 192;
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, column = i % 32;
    const uint8_t byte = low[64 * half + 32 * (quarter % 2) + column];
    const int nibble = quarter < 2 ? byte & 15 : byte >> 4;
    const int code = (nibble | (high[32 * half + column] >> (2 * quarter) & 3) << 4) - 32;
    values[i] = d * static_cast<float>(static_cast<int8_t>(scales[i / 16])) * static_cast<float>(code);
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
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32, column = i % 32;
    const uint8_t byte = nibbles[32 * (group / 2) + column];
    int code = group % 2 ? byte >> 4 : byte & 15;
    if (five) code |= (high[column] >> group & 1) << 4;
    codes[i] = static_cast<uint8_t>(code);
  }
}

void k_values(GgmlType type, const uint8_t* block, float values[256]) {
  switch (type) {
    case GgmlType::q2_k: return q2_values(block, values);
    case GgmlType::q3_k: return q3_values(block, values);
    case GgmlType::q6_k: return q6_values(block, values);
    default: fail(ErrorKind::internal, "not a block type with groups of 16");
  }
}

}  // namespace mlxcel
