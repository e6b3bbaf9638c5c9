// Packed codes and their scales over the vector words of whichever tier was included before (isa/matmul.h has
// the layout): what a lane's words stand for. Part of matmul_body.h; internal linkage.
#pragma once

#include "kernels/isa/matmul.h"

namespace {

using mlxcel::kernels::CodeKind;
using mlxcel::kernels::CodeLayout;
using mlxcel::kernels::ElementKind;
using mlxcel::kernels::Finish;
using mlxcel::kernels::kBf16;
using mlxcel::kernels::kChunk;
using mlxcel::kernels::kCode2;
using mlxcel::kernels::kCode3;
using mlxcel::kernels::kCode4;
using mlxcel::kernels::kCode5;
using mlxcel::kernels::kCode6;
using mlxcel::kernels::kCode8;
using mlxcel::kernels::kDenseRows;
using mlxcel::kernels::kE4m3;
using mlxcel::kernels::kE8m0;
using mlxcel::kernels::kF16;
using mlxcel::kernels::kF32;
using mlxcel::kernels::kFloat4;
using mlxcel::kernels::kFloat8;
using mlxcel::kernels::kMostStreams;
using mlxcel::kernels::MatmulBodies;
using mlxcel::kernels::Streams;
using mlxcel::kernels::words_of;

constexpr int kPairs = kChunk / 2;
constexpr int kQuads = kChunk / 4;
constexpr size_t kVector = 4 * kLanes;  // bytes of a vector

/// Bytes of a token's part of a panel chunk.
template <bool kBytes>
constexpr size_t panel_token() {
  return 4 * ((kBytes ? kQuads : kPairs) + 2);
}
/// Bytes of a chunk in the scratch that spread() fills.
template <bool kBytes, bool kHalves>
constexpr size_t scratch_chunk() {
  return 2 * kVector * ((kBytes ? kQuads : kPairs) + (kHalves ? 4 : 2));
}

template <ElementKind kKind>
constexpr size_t element_size() {
  return kKind == kF32 ? 4 : 2;
}

template <ElementKind kKind>
MLXCEL_INLINE F load_element(const uint8_t* p) {
  if constexpr (kKind == kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kKind == kF16) return load_f16(p);
  return load_bf16(p);
}

// ---- Scales ---------------------------------------------------------------------------------------

/// 2^(e - 127) times a power of two.
MLXCEL_INLINE F scale_e8m0(const uint8_t* p, float factor) {
  const I e = load_u8(p);
  const F exponent = to_float(e);
  F v = where_less(exponent, set1(0.5f), from_bits(set1_i(0x00400000)), from_bits(shift_left<23>(e)));
  v = where_less(set1(254.5f), exponent, from_bits(set1_i(0x7fc00000)), v);
  return mul(v, set1(factor));
}

/// e4m3 codes, one a lane, times a power of two.
MLXCEL_INLINE F float8(I code, float factor) {
  const I size = and_i(code, set1_i(0x7f));
  // Exponents differ by 120: multiplying by 2^120 also settles denormals. 0x7f is no number.
  F v = mul(from_bits(shift_left<20>(size)), set1(0x1p120f * factor));
  v = where_less(set1(126.5f), to_float(size), from_bits(set1_i(0x7fc00000)), v);
  return from_bits(add_i(bits(v), shift_left<24>(and_i(code, set1_i(0x80)))));
}

/// Bytes of a group's scales and biases.
MLXCEL_INLINE size_t tail_bytes(const CodeLayout& layout) {
  const size_t vectors = layout.centred ? 2 : 4;
  switch (layout.kind) {
    case kF32:
      return 4 * vectors * kLanes;
    case kF16:
    case kBf16:
      return 2 * vectors * kLanes;
    case kE8m0:
      return 2 * kLanes;
    default:
      return 4 * kLanes;
  }
}

template <CodeKind kCode>
constexpr float scale_factor() {
  return kCode == kFloat4 ? 0.5f : 1.0f;
}

template <CodeKind kCode, ElementKind kKind>
MLXCEL_INLINE void load_elements(bool centred, const uint8_t* tail, float* to) {
  constexpr size_t kStep = element_size<kKind>() * kLanes;
  const F middle = set1(-static_cast<float>(mlxcel::kernels::half_range(kCode)));
  for (int v = 0; v < 2; ++v) {
    const F scale = load_element<kKind>(tail + static_cast<size_t>(v) * kStep);
    store(to + v * kLanes, scale);
    store(to + (2 + v) * kLanes,
          centred ? mul(scale, middle) : load_element<kKind>(tail + static_cast<size_t>(2 + v) * kStep));
  }
}

/// Two vectors of scales, then two of biases. e2m1 codes come as twice their values, so their scales halve.
template <CodeKind kCode>
MLXCEL_INLINE void load_tail(const CodeLayout& layout, const uint8_t* tail, int half, float* to) {
  constexpr float kFactor = scale_factor<kCode>();
  const ElementKind kind = layout.kind;
  if (kind == kF16) return load_elements<kCode, kF16>(layout.centred, tail, to);
  if (kind == kBf16) return load_elements<kCode, kBf16>(layout.centred, tail, to);
  if (kind == kF32) return load_elements<kCode, kF32>(layout.centred, tail, to);
  for (int v = 0; v < 2; ++v) {
    const uint8_t* const from = tail + (2 * half + v) * kLanes;
    store(to + v * kLanes, kind == kE8m0 ? scale_e8m0(from, kFactor) : float8(load_u8(from), kFactor));
    store(to + (2 + v) * kLanes, zero());
  }
}

// ---- Codes ----------------------------------------------------------------------------------------

/// Pair `kIndex` of the kBits of each code that lie in `words`.
template <int kBits, int kIndex>
MLXCEL_INLINE I pair_bits(const uint8_t* words) {
  constexpr int kPerWord = 16 / kBits, kShift = kBits * (kIndex % kPerWord);
  const I v = load_i(words + static_cast<size_t>(kIndex / kPerWord) * kVector);
  const I mask = set1_i(((1 << kBits) - 1) * 0x10001);
  if constexpr (kShift == 0)
    return and_i(v, mask);
  else if constexpr (kShift + kBits == 16)
    return shift_right16<kShift>(v);
  else
    return and_i(shift_right<kShift>(v), mask);
}

/// Columns 2 * kIndex and 2 * kIndex + 1 of a lane's words as a pair of int16.
template <CodeKind kCode, int kIndex>
MLXCEL_INLINE I code_pair(const uint8_t* words) {
  if constexpr (kCode == kCode8 || kCode == kFloat8) {
    constexpr int kWord = 2 * (kIndex / 4) + kIndex % 2;
    const I v = load_i(words + kWord * kVector);
    if constexpr (kIndex % 4 < 2)
      return and_i(v, set1_i(0x00ff00ff));
    else
      return shift_right16<8>(v);
  } else {
    constexpr int kLow = kCode == kCode2 || kCode == kCode3 ? 2 : 4;
    constexpr int kHigh = kCode == kCode3 || kCode == kCode5 ? 1 : kCode == kCode6 ? 2 : 0;
    I v = pair_bits<kLow, kIndex>(words);
    if constexpr (kHigh > 0) v = add_i(v, shift_left<kLow>(pair_bits<kHigh, kIndex>(words + kLow * kVector)));
    if constexpr (kCode == kFloat4) v = twice_e2m1(v);
    return v;
  }
}

/// A number that a generic function knows when it is compiled.
template <int kValue>
struct Index {
  static constexpr int value = kValue;
  constexpr operator int() const { return kValue; }
};

/// Calls step(Index, w0, w1) for pairs [kIndex, kLast) of a chunk of packed words.
template <CodeKind kCode, int kIndex, int kLast, class Step>
MLXCEL_INLINE void each_pair(const uint8_t* words, const Step& step) {
  if constexpr (kIndex < kLast) {
    step(Index<kIndex>{}, code_pair<kCode, kIndex>(words),
         code_pair<kCode, kIndex>(words + words_of(kCode) * kVector));
    each_pair<kCode, kIndex + 1, kLast>(words, step);
  }
}

/// The same for quads of bytes.
template <CodeKind kCode, int kIndex = 0, class Step>
MLXCEL_INLINE void each_quad(const uint8_t* words, const Step& step) {
  if constexpr (kIndex < kQuads) {
    const uint8_t* const words1 = words + words_of(kCode) * kVector;
    if constexpr (kCode == kCode4) {
      constexpr size_t kAt = kIndex / 2 * kVector;
      const I mask = set1_i(0x0f0f0f0f);
      I v0 = load_i(words + kAt), v1 = load_i(words1 + kAt);
      if constexpr (kIndex % 2 == 1) {
        v0 = shift_right<4>(v0);
        v1 = shift_right<4>(v1);
      }
      step(Index<kIndex>{}, and_i(v0, mask), and_i(v1, mask));
    } else {
      step(Index<kIndex>{}, load_i(words + kIndex * kVector), load_i(words1 + kIndex * kVector));
    }
    each_quad<kCode, kIndex + 1>(words, step);
  }
}

}  // namespace
