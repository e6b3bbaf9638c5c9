// peak.h over the vector words of whichever tier was included before.
#pragma once

#include "kernels/isa/peak.h"

namespace {

// Every loop over tokens is unrolled by request: left alone, GCC clears the sums as memory and never keeps
// them in registers.

/// The words that a step reads: the compiler must believe that they change.
#define MLXCEL_TOUCH(words) __asm__ volatile("" : "+m"(words))

uint64_t peak_bytes(uint64_t steps, uint8_t* sink) {
  if constexpr (!kBytesServe4) return 0;
  I s0[kMostTokens], s1[kMostTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kMostTokens; ++t) s0[t] = s1[t] = zero_i();
  const I w0 = set1_i(0x01020301), w1 = set1_i(0x02010102);
  uint8_t x[4 * kMostTokens] = {1, 2, 255, 1};
  for (uint64_t i = 0; i < steps; ++i) {
    MLXCEL_TOUCH(x);
#pragma GCC unroll 16
    for (int t = 0; t < kMostTokens; ++t) step_quads(s0[t], s1[t], w0, w1, x + 4 * t);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kMostTokens; ++t) store_i(sink, add_i(load_i(sink), add_i(s0[t], s1[t])));
  return steps * 8 * kMostTokens * kLanes;
}

uint64_t peak_pairs(uint64_t steps, uint8_t* sink) {
  I s0[kMostTokens], s1[kMostTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kMostTokens; ++t) s0[t] = s1[t] = zero_i();
  const I w0 = set1_i(0x00010002), w1 = set1_i(0x00030001);
  uint8_t x[4 * kMostTokens] = {1, 2, 255, 1};
  for (uint64_t i = 0; i < steps; ++i) {
    MLXCEL_TOUCH(x);
#pragma GCC unroll 16
    for (int t = 0; t < kMostTokens; ++t) step_pairs(s0[t], s1[t], w0, w1, x + 4 * t);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kMostTokens; ++t) store_i(sink, add_i(load_i(sink), add_i(s0[t], s1[t])));
  return steps * 4 * kMostTokens * kLanes;
}

uint64_t peak_floats(uint64_t steps, uint8_t* sink) {
  F s0[kMostTokens], s1[kMostTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kMostTokens; ++t) s0[t] = s1[t] = zero();
  const F w0 = set1(0.5f), w1 = set1(0.25f);
  float x[kMostTokens] = {1.0f};
  for (uint64_t i = 0; i < steps; ++i) {
    MLXCEL_TOUCH(x);
#pragma GCC unroll 16
    for (int t = 0; t < kMostTokens; ++t) step_floats(s0[t], s1[t], w0, w1, x + t);
  }
  float out[kLanes];
  F all = zero();
#pragma GCC unroll 16
  for (int t = 0; t < kMostTokens; ++t) all = add(all, add(s0[t], s1[t]));
  store(out, all);
  memcpy(sink, out, sizeof out);
  return steps * 2 * kMostTokens * kLanes;
}

constexpr mlxcel::kernels::PeakBodies kPeak{.bytes = peak_bytes, .pairs = peak_pairs, .floats = peak_floats};

}  // namespace
