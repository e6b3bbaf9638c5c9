// Keys and values that pages do not hold as floating-point numbers: 8-bit steps, and 4- or 3-bit places in a
// codebook after a rotation. Part of attention_body.h, after the vector operations and before the products.
// A token's scales are its own, and sums go in one order, so its codes depend on nothing else.
// 4-bit keys [key_dim][16 bytes]: token t in the low half of byte t, token t + 16 in the high half. 4-bit
// values [32][value_dim / 2]: entry d low, entry d + value_dim / 2 high. 3-bit values [32]: two bits each of
// n = max(8, value_dim) entries ([n / 4], entry j + k * n / 4 at bits 2k of byte j), then the third ([n / 8],
// entry j + k * n / 8 at bit k). Not a header of its own: no pragma once, no includes.

// Places where a normal variable is told best from 16 and 8 levels (Max 1960, Lloyd 1982).
constexpr float kLevels16[16] = {-2.7326f, -2.0690f, -1.6180f, -1.2562f, -0.9424f, -0.6568f,
                                 -0.3881f, -0.1284f, 0.1284f,  0.3881f,  0.6568f,  0.9424f,
                                 1.2562f,  1.6180f,  2.0690f,  2.7326f};
constexpr float kLevels8[16] = {-2.1520f, -1.3439f, -0.7560f, -0.2451f, 0.2451f, 0.7560f, 1.3439f, 2.1520f};

/// Signs that look random, the same in every process.
inline bool turns_sign(unsigned i) {
  i *= 0x85EBCA6Bu;
  i ^= i >> 13;
  i *= 0xC2B2AE35u;
  return ((i ^ (i >> 16)) & 1u) != 0;
}

inline void change_signs(float* x, int count) {
  for (int i = 0; i < count; ++i) x[i] = turns_sign(static_cast<unsigned>(i)) ? -x[i] : x[i];
}

/// The Walsh-Hadamard transform, over sqrt(count): its own inverse.
inline void hadamard(float* x, int count) {
  for (int half = 1; half < count; half *= 2)
    for (int from = 0; from < count; from += 2 * half)
      for (int i = from; i < from + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const float share = 1.0f / __builtin_sqrtf(static_cast<float>(count));
  for (int i = 0; i < count; ++i) x[i] *= share;
}

/// A rotation after which a vector's entries are close to normal, whatever it was; and back.
inline void turn(float* x, int count) {
  change_signs(x, count);
  hadamard(x, count);
}
inline void turn_back(float* x, int count) {
  hadamard(x, count);
  change_signs(x, count);
}

/// One token of an 8-bit page: whole numbers `stride` apart, and the step they count. What is not finite
/// stays so.
inline float quantise(const float* x, int count, int8_t* to, size_t stride) {
  float top = 0.0f, broken = 0.0f;
  for (int d = 0; d < count; ++d) {
    top = larger(__builtin_fabsf(x[d]), top);
    broken += x[d] * 0.0f;
  }
  const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
  for (int d = 0; d < count; ++d) {
    const float steps = x[d] * inverse;
    // Adding and taking away 1.5 * 2^23 rounds to the nearest whole number, ties to even.
    to[static_cast<size_t>(d) * stride] = steps >= -127.5f && steps <= 127.5f
                                              ? static_cast<int8_t>((steps + 12582912.0f) - 12582912.0f)
                                              : int8_t{0};
  }
  return top / 127.0f + broken;
}

/// The rotated `count` values of x on the codebook, and what its levels are to be multiplied by for the least
/// error. What is not finite stays so.
inline float on_codebook(const float* x, int count, const float* levels, int size, uint8_t* codes) {
  alignas(64) float turned[kMostTurned];
  for (int d = 0; d < count; ++d) turned[d] = x[d];
  turn(turned, count);
  float energy = 0.0f;
  for (int d = 0; d < count; ++d) energy = __builtin_fmaf(turned[d], turned[d], energy);
  const float width = __builtin_sqrtf(energy / static_cast<float>(count));
  const float inverse = width > 0.0f ? 1.0f / width : 0.0f;
  for (int d = 0; d < count; ++d) codes[d] = 0;
  for (int k = 1; k < size; ++k) {
    const float edge = 0.5f * (levels[k - 1] + levels[k]);
    for (int d = 0; d < count; ++d)
      codes[d] = static_cast<uint8_t>(codes[d] + (turned[d] * inverse > edge ? 1 : 0));
  }
  float along = 0.0f, square = 0.0f;
  for (int d = 0; d < count; ++d) {
    const float level = levels[codes[d]];
    along = __builtin_fmaf(turned[d], level, along);
    square = __builtin_fmaf(level, level, square);
  }
  return along / square;
}

/// The step's tokens that fall into one page of a row, for one kv head.
struct Fresh {
  const float *k, *v;  // of the first of them
  size_t k_stride, v_stride;
  char* head;
  size_t lane;  // of the first in the page
  int count;
};

inline void append_coded_keys(const AttentionCall& c, const Fresh& f) {
  float* const scales = reinterpret_cast<float*>(f.head + c.key_scales);
  for (int t = 0; t < f.count; ++t) {
    const size_t lane = f.lane + static_cast<size_t>(t);
    const float* const x = f.k + static_cast<size_t>(t) * f.k_stride;
    int from = 0;
    for (size_t part = 0; from < c.key_dim; ++part) {
      const int width = part == 0 ? c.key_split : c.key_dim - from;
      float& scale = scales[part * kAttentionPage + lane];
      char* const to =
          f.head + static_cast<size_t>(from) * (c.type == PageType::i8 ? kAttentionPage : kAttentionPage / 2);
      if (c.type == PageType::i8) {
        scale = quantise(x + from, width, reinterpret_cast<int8_t*>(to) + lane, kAttentionPage);
      } else {
        uint8_t codes[kMostTurned];
        scale = on_codebook(x + from, width, kLevels16, 16, codes);
        uint8_t* const bytes = reinterpret_cast<uint8_t*>(to) + lane % 16;
        const int shift = lane < 16 ? 0 : 4;
        for (int d = 0; d < width; ++d) {
          uint8_t& byte = bytes[static_cast<size_t>(d) * 16];
          byte = static_cast<uint8_t>((byte & (0xF0 >> shift)) | (codes[d] << shift));
        }
      }
      from += width;
    }
  }
}

inline size_t coded_row_bytes(const AttentionCall& c) {
  const size_t dim = static_cast<size_t>(c.value_dim);
  if (c.value_type == PageType::i8) return dim;
  return c.value_type == PageType::t4 ? dim / 2 : (dim < 8 ? 8 : dim) * 3 / 8;
}

inline void append_coded_values(const AttentionCall& c, const Fresh& f) {
  float* const scales = reinterpret_cast<float*>(f.head + c.value_scales);
  const size_t row_bytes = coded_row_bytes(c);
  for (int t = 0; t < f.count; ++t) {
    const size_t lane = f.lane + static_cast<size_t>(t);
    const float* const x = f.v + static_cast<size_t>(t) * f.v_stride;
    uint8_t* const to = reinterpret_cast<uint8_t*>(f.head + c.value_offset) + lane * row_bytes;
    uint8_t codes[kMostTurned];
    switch (c.value_type) {
      case PageType::t4: {
        scales[lane] = on_codebook(x, c.value_dim, kLevels16, 16, codes);
        for (size_t d = 0; d < row_bytes; ++d)
          to[d] = static_cast<uint8_t>(codes[d] | (codes[row_bytes + d] << 4));
        break;
      }
      case PageType::t3: {
        for (int d = c.value_dim; d < 8; ++d) codes[d] = 0;
        scales[lane] = on_codebook(x, c.value_dim, kLevels8, 8, codes);
        const size_t pairs = row_bytes * 2 / 3, bits = row_bytes / 3;
        for (size_t d = 0; d < pairs; ++d) {
          to[d] = 0;
          for (size_t k = 0; k < 4; ++k)
            to[d] = static_cast<uint8_t>(to[d] | ((codes[k * pairs + d] & 3) << (2 * k)));
        }
        for (size_t d = 0; d < bits; ++d) {
          to[pairs + d] = 0;
          for (size_t k = 0; k < 8; ++k)
            to[pairs + d] = static_cast<uint8_t>(to[pairs + d] | ((codes[k * bits + d] >> 2) << k));
        }
        break;
      }
      default:
        scales[lane] = quantise(x, c.value_dim, reinterpret_cast<int8_t*>(to), 1);
    }
  }
}

/// A page's coded keys as f32 [key_dim][32].
inline void widen_coded_keys(const AttentionCall& c, const char* head, float* to) {
  const float* scales = reinterpret_cast<const float*>(head + c.key_scales);
  const size_t key_dim = static_cast<size_t>(c.key_dim), split = static_cast<size_t>(c.key_split);
  for (size_t d = 0; d < key_dim; ++d, to += kAttentionPage) {
    if (d == split) scales += kAttentionPage;
    if (c.type == PageType::i8) {
      const int8_t* const steps = reinterpret_cast<const int8_t*>(head) + d * kAttentionPage;
      for (size_t t = 0; t < kAttentionPage; ++t) to[t] = static_cast<float>(steps[t]) * scales[t];
      continue;
    }
    const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(head) + d * 16;
    alignas(64) uint8_t codes[kAttentionPage];
    for (size_t t = 0; t < 16; ++t) {
      codes[t] = bytes[t] & 15;
      codes[16 + t] = static_cast<uint8_t>(bytes[t] >> 4);
    }
    for (size_t t = 0; t < kAttentionPage; t += kLanes)
      v_store(to + t, v_mul(v_look_up(kLevels16, codes + t), v_load(scales + t)));
  }
}

/// A page's coded values as f32 [32][padded].
inline void widen_coded_values(const AttentionCall& c, const char* head, float* to, size_t padded) {
  const float* const scales = reinterpret_cast<const float*>(head + c.value_scales);
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(head + c.value_offset);
  const size_t dim = static_cast<size_t>(c.value_dim), row_bytes = coded_row_bytes(c);
  alignas(64)
      uint8_t codes[kMostTurned + kAttentionPad] = {};  // places behind the last entry are looked up too
  for (size_t t = 0; t < kAttentionPage; ++t, to += padded, bytes += row_bytes) {
    if (c.value_type == PageType::i8) {
      const int8_t* const steps = reinterpret_cast<const int8_t*>(bytes);
      for (size_t d = 0; d < dim; ++d) to[d] = static_cast<float>(steps[d]) * scales[t];
    } else {
      const float* levels = kLevels16;
      if (c.value_type == PageType::t4) {
        for (size_t d = 0; d < row_bytes; ++d) {
          codes[d] = bytes[d] & 15;
          codes[row_bytes + d] = static_cast<uint8_t>(bytes[d] >> 4);
        }
      } else {
        levels = kLevels8;
        const size_t pairs = row_bytes * 2 / 3, bits = row_bytes / 3;
        for (size_t k = 0; k < 4; ++k)
          for (size_t d = 0; d < pairs; ++d)
            codes[k * pairs + d] = static_cast<uint8_t>((bytes[d] >> (2 * k)) & 3);
        for (size_t k = 0; k < 8; ++k)
          for (size_t d = 0; d < bits; ++d)
            codes[k * bits + d] =
                static_cast<uint8_t>(codes[k * bits + d] | (((bytes[pairs + d] >> k) & 1) << 2));
      }
      const Vec scale = v_set(scales[t]);
      for (size_t d = 0; d < dim; d += kLanes) v_store(to + d, v_mul(v_look_up(levels, codes + d), scale));
    }
    for (size_t d = dim; d < padded; ++d) to[d] = 0.0f;
  }
}
