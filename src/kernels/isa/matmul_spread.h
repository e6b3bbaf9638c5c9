// Packed codes spread once for many tiles: as int16 or bytes for the integer products, as f32 where there are
// none. Over the vector words of whichever tier was included before. Part of matmul_body.h; internal linkage.
#pragma once

#include "kernels/isa/matmul_tile.h"

namespace {

template <CodeKind kCode, bool kBytes, bool kHalves>
void spread_chunks(const CodeLayout& layout, const uint8_t* block, int first, int last, uint8_t* scratch) {
  const int chunks = layout.group / kChunk;
  constexpr int kSteps = (kBytes ? kQuads : kPairs) / kParts<kHalves>;
  constexpr size_t kWords = 2 * words_of(kCode) * kVector, kPart = 2 * kVector * (kSteps + 2);
  const size_t group_size = static_cast<size_t>(chunks) * kWords + tail_bytes(layout);
  for (int g = first / chunks; g < last / chunks; ++g) {
    const uint8_t* words = block + static_cast<size_t>(g) * group_size;
    const uint8_t* const tail = words + static_cast<size_t>(chunks) * kWords;
    for (int c = 0; c < chunks; ++c) {
      fetch_ahead<kWords + 64>(words);
      const auto step = [&](int index, I w0, I w1) __attribute__((always_inline)) {
        uint8_t* const to = scratch + static_cast<size_t>(index / kSteps) * kPart +
                            static_cast<size_t>(2 * (index % kSteps)) * kVector;
        store_i(to, w0);
        store_i(to + kVector, w1);
      };
      if constexpr (kBytes)
        each_quad<kCode>(words, step);
      else
        each_pair<kCode, 0, kPairs>(words, step);
      for (int h = 0; h < kParts<kHalves>; ++h)
        load_tail<kCode>(
            layout, tail, h,
            reinterpret_cast<float*>(scratch + static_cast<size_t>(h) * kPart + 2 * kSteps * kVector));
      words += kWords;
      scratch += scratch_chunk<kBytes, kHalves>();
    }
  }
}

template <CodeKind kCode>
void expand_chunks(const CodeLayout& layout, const uint8_t* block, int first, int last, float* to) {
  const int chunks = layout.group / kChunk;
  constexpr size_t kWords = 2 * words_of(kCode) * kVector;
  const bool halves = layout.kind == kE4m3;
  const size_t group_size = static_cast<size_t>(chunks) * kWords + tail_bytes(layout);
  for (int chunk = first; chunk < last; ++chunk) {
    const uint8_t* const group = block + static_cast<size_t>(chunk / chunks) * group_size;
    const uint8_t* const tail = group + static_cast<size_t>(chunks) * kWords;
    alignas(64) float scales[2][4 * kLanes];
    for (int h = 0; h < (halves ? 2 : 1); ++h) load_tail<kCode>(layout, tail, h, scales[h]);
    each_pair<kCode, 0, kPairs>(
        group + static_cast<size_t>(chunk % chunks) * kWords, [&](int index, I w0, I w1) {
          const float* const s = scales[halves && index >= kPairs / 2 ? 1 : 0];
          float* const at = to + index * 4 * kLanes;  // two columns of two vectors
          const auto value = [&](I pair, bool second, int v) __attribute__((always_inline)) {
            const F scale = load(s + v * kLanes);
            if constexpr (kCode == kFloat8)
              return mul(float8(second ? shift_right<16>(pair) : and_i(pair, set1_i(0xffff)), 1.0f), scale);
            else if constexpr (kCode == kFloat4)
              return mul(to_float(shift_signed<16>(second ? pair : shift_left<16>(pair))), scale);
            else
              return add(mul(to_float(second ? shift_right<16>(pair) : and_i(pair, set1_i(0xffff))), scale),
                         load(s + (2 + v) * kLanes));
          };
          store(at, value(w0, false, 0));
          store(at + kLanes, value(w1, false, 1));
          store(at + 2 * kLanes, value(w0, true, 0));
          store(at + 3 * kLanes, value(w1, true, 1));
        });
    to += kChunk * 2 * kLanes;
  }
}

}  // namespace
