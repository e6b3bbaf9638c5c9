// Products of packed codes with panels, over the vector words of whichever tier was included before
// (isa/matmul.h has the layouts). Every output element is the same sequence of operations for any number of
// tokens: exact integer sums over a chunk, then fma(sum * weight scale, x scale), fma(weight bias, x scale *
// x sum), chunks in order. Part of matmul_body.h; internal linkage.
#pragma once

#include "kernels/isa/matmul_codes.h"

namespace {

MLXCEL_INLINE const uint8_t* token_word(const uint8_t* panel, int index, int count, int t) {
  return panel + 4 * (index * count + t);
}

/// Weights are asked for this far ahead of their use, all streams together: the hardware's own prefetch lags
/// behind a stream that has arithmetic between its loads (Zen 3, one thread: 12.7 -> 17.4 GB/s). Beyond the
/// end it does nothing.
constexpr size_t kAhead = 3200;

template <size_t kBytes>
MLXCEL_INLINE void fetch_ahead(const uint8_t* at, size_t ahead = kAhead) {
  for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(at + ahead + line);
}

/// The same address, which the compiler shall not take apart: else it keeps one pointer for every word of a
/// panel that several blocks read, more than there are registers, and loads them from the stack.
MLXCEL_INLINE const uint8_t* one_address(const uint8_t* p) {
  __asm__ volatile("" : "+r"(p));
  return p;
}

/// Sums of a chunk: one (pairs) or four (quads) columns a step against kTokens activations. The step of
/// kFirst makes them.
template <int kTokens, bool kBytes>
struct Sums {
  I s0[kTokens], s1[kTokens];

  template <bool kFirst>
  inline __attribute__((always_inline)) void step(const uint8_t* panel, int index, I w0, I w1) {
    for (int t = 0; t < kTokens; ++t) {
      const uint8_t* const x = token_word(panel, index, kTokens, t);
      if constexpr (kBytes && kFirst)
        start_quads(s0[t], s1[t], w0, w1, x);
      else if constexpr (kBytes)
        step_quads(s0[t], s1[t], w0, w1, x);
      else if constexpr (kFirst)
        start_pairs(s0[t], s1[t], w0, w1, x);
      else
        step_pairs(s0[t], s1[t], w0, w1, x);
    }
  }
  inline __attribute__((always_inline)) I sum0(int t) const { return kBytes ? settle4(s0[t]) : s0[t]; }
  inline __attribute__((always_inline)) I sum1(int t) const { return kBytes ? settle4(s1[t]) : s1[t]; }
};

/// The same with activations as two planes of bytes.
template <int kTokens>
struct PlaneSums {
  Sums<kTokens, true> high, low;

  template <bool kFirst>
  inline __attribute__((always_inline)) void step(const uint8_t* panel, int index, I w0, I w1) {
    high.template step<kFirst>(panel, index, w0, w1);
    low.template step<kFirst>(panel, kQuads + index, w0, w1);
  }
  inline __attribute__((always_inline)) I sum0(int t) const { return settle_planes(high.s0[t], low.s0[t]); }
  inline __attribute__((always_inline)) I sum1(int t) const { return settle_planes(high.s1[t], low.s1[t]); }
};

/// acc += the chunk's sums, scaled. `words`: the panel's integers a token, before its scale; tail: the
/// group's scales and biases, two vectors each.
template <int kTokens, class Sum>
MLXCEL_INLINE void add_chunk(const Sum& sums, const uint8_t* panel, int words, const float* tail,
                             float* acc) {
  const auto* const scales = reinterpret_cast<const float*>(token_word(panel, words, kTokens, 0));
  for (int t = 0; t < kTokens; ++t)
    add_scaled(sums.sum0(t), sums.sum1(t), tail, scales + t, scales + kTokens + t, acc + t * 2 * kLanes);
}

/// Halves of a chunk that have scales of their own.
template <bool kHalves>
constexpr int kParts = kHalves ? 2 : 1;

/// The streams' blocks chunk by chunk in turn: what is added to an output is the same for any number of them.
template <CodeKind kCode, int kTokens, bool kBytes, bool kHalves, class Sum>
__attribute__((noinline)) void direct_tile(const CodeLayout& layout, const Streams& blocks,
                                           const uint8_t* panel, float* out) {
  constexpr bool kQuadPanel = kBytes && __is_same(Sum, Sums<kTokens, true>);
  constexpr size_t kWords = 2 * words_of(kCode) * kVector, kSize = static_cast<size_t>(kTokens * 2 * kLanes);
  const int groups = layout.columns / layout.group, chunks = layout.group / kChunk;
  const CodeLayout own = layout;  // nobody else writes it
  const Streams from = blocks;
  const size_t tail_size = tail_bytes(own), tail_at = static_cast<size_t>(chunks) * kWords;
  const size_t ahead = kAhead / static_cast<size_t>(from.count);
  alignas(64) float acc[kMostStreams][kSize];
  alignas(64) float scales[kMostStreams][kParts<kHalves>][4 * kLanes];
  memset(acc, 0, static_cast<size_t>(from.count) * sizeof acc[0]);
  size_t at = 0;  // in each block
  for (int g = 0; g < groups; ++g, at += tail_size) {
    for (int b = 0; b < from.count; ++b)
      for (int h = 0; h < kParts<kHalves>; ++h)
        load_tail<kCode>(own, from.at[b] + at + tail_at, h, scales[b][h]);
    for (int c = 0; c < chunks; ++c, at += kWords) {
      for (int b = 0; b < from.count; ++b) {
        const uint8_t* const words = from.at[b] + at;
        fetch_ahead<kWords + 64>(words, ahead);
        const uint8_t* const x = one_address(panel);
        Sum sums;
        const auto step = [&](auto index, I w0, I w1) __attribute__((always_inline)) {
          sums.template step<index.value % (kPairs / kParts<kHalves>) == 0>(x, index, w0, w1);
        };
        if constexpr (kBytes) {
          each_quad<kCode>(words, step);
        } else if constexpr (kHalves) {
          each_pair<kCode, 0, kPairs / 2>(words, step);
          add_chunk<kTokens>(sums, x, kPairs, scales[b][0], acc[b]);
          each_pair<kCode, kPairs / 2, kPairs>(words, step);
        } else {
          each_pair<kCode, 0, kPairs>(words, step);
        }
        add_chunk<kTokens>(sums, x, kQuadPanel ? kQuads : kPairs, scales[b][kParts<kHalves> - 1], acc[b]);
      }
      panel += kTokens * panel_token<kQuadPanel>();
    }
  }
  memcpy(out, acc, static_cast<size_t>(from.count) * sizeof acc[0]);
}

template <int kTokens, bool kBytes, bool kHalves>
__attribute__((noinline)) void scratch_tile(const uint8_t* scratch, const uint8_t* panel, int chunks,
                                            const uint8_t* next, int lines, float* __restrict acc) {
  constexpr int kSteps = (kBytes ? kQuads : kPairs) / kParts<kHalves>;
  const int each = (lines + chunks - 1) / chunks;
  const uint8_t* const end = next + static_cast<ptrdiff_t>(lines) * 64;
  for (int c = 0; c < chunks; ++c) {
    for (int l = 0; l < each && next < end; ++l, next += 64) __builtin_prefetch(next, 0, 2);
    for (int h = 0; h < kParts<kHalves>; ++h) {
      Sums<kTokens, kBytes> sums;
      const uint8_t* const x = panel + 4 * h * kSteps * kTokens;
      sums.template step<true>(x, 0, load_i(scratch), load_i(scratch + kVector));
#pragma GCC unroll 16
      for (int i = 1; i < kSteps; ++i)
        sums.template step<false>(x, i, load_i(scratch + 2 * i * kVector),
                                  load_i(scratch + (2 * i + 1) * kVector));
      add_chunk<kTokens>(sums, panel, kSteps * kParts<kHalves>,
                         reinterpret_cast<const float*>(scratch + 2 * kSteps * kVector), acc);
      scratch += 2 * kVector * (kSteps + 2);
    }
    panel += kTokens * panel_token<kBytes>();
  }
}

}  // namespace
