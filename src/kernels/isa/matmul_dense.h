// Products of dense elements, one fma a column, in order; and what becomes of finished sums. Over the vector
// words of whichever tier was included before. Part of matmul_body.h; internal linkage.
#pragma once

#include "kernels/isa/matmul_tile.h"

namespace {

/// The streams' blocks by turns, a chunk of columns each.
template <ElementKind kKind>
void dense_row(const Streams& blocks, const float* x, int columns, float* acc) {
  constexpr int kVectors = kDenseRows / kLanes;
  constexpr size_t kStep = kDenseRows * element_size<kKind>();
  const Streams from = blocks;
  const size_t ahead = kAhead / static_cast<size_t>(from.count);
  memset(acc, 0, static_cast<size_t>(from.count) * kDenseRows * sizeof(float));
  for (int first = 0; first < columns; first += kChunk) {
    const int last = columns - first < kChunk ? columns : first + kChunk;
    for (int b = 0; b < from.count; ++b) {
      float* const to = acc + b * kDenseRows;
      const uint8_t* at = from.at[b] + static_cast<size_t>(first) * kStep;
      F sums[kVectors];
      for (int v = 0; v < kVectors; ++v) sums[v] = load(to + v * kLanes);
      for (int k = first; k < last; ++k, at += kStep) {
        const F value = set1(x[k]);
        fetch_ahead<kStep>(at, ahead);
        for (int v = 0; v < kVectors; ++v)
          sums[v] = fma(load_element<kKind>(at + static_cast<size_t>(v * kLanes) * element_size<kKind>()),
                        value, sums[v]);
      }
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, sums[v]);
    }
  }
}

void dense_one(ElementKind kind, const Streams& blocks, const float* x, int columns, float* acc) {
  if (kind == kF32)
    dense_row<kF32>(blocks, x, columns, acc);
  else if (kind == kF16)
    dense_row<kF16>(blocks, x, columns, acc);
  else
    dense_row<kBf16>(blocks, x, columns, acc);
}

template <ElementKind kKind>
void widen_all(const uint8_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; i += kLanes)
    store(to + i, load_element<kKind>(from + i * element_size<kKind>()));
}

void widen(ElementKind kind, const uint8_t* from, size_t count, float* to) {
  if (kind == kF32)
    widen_all<kF32>(from, count, to);
  else if (kind == kF16)
    widen_all<kF16>(from, count, to);
  else
    widen_all<kBf16>(from, count, to);
}

template <int kTokens>
__attribute__((noinline)) void dense_tokens(const float* scratch, int rows, const float* panel, int columns,
                                            float* acc) {
  for (int r = 0; r < rows; r += 2 * kLanes) {
    F s0[kTokens], s1[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      s0[t] = load(acc + t * rows + r);
      s1[t] = load(acc + t * rows + r + kLanes);
    }
    const float* w = scratch + r;
    const float* x = panel;
    for (int k = 0; k < columns; ++k, w += rows, x += kTokens) {
      const F w0 = load(w), w1 = load(w + kLanes);
      for (int t = 0; t < kTokens; ++t) step_floats(s0[t], s1[t], w0, w1, x + t);
    }
    for (int t = 0; t < kTokens; ++t) {
      store(acc + t * rows + r, s0[t]);
      store(acc + t * rows + r + kLanes, s1[t]);
    }
  }
}

/// A whole block without biases, as most are.
template <bool kGated, bool kActive, bool kResidual>
void finish_whole(const Finish& how, const float* acc, int rows, int block, int first_row, int count) {
  const int width = kGated ? rows / 2 : rows;
  const ptrdiff_t column = how.column0 + block * width;
  for (int t = 0; t < count; ++t, acc += rows) {
    const ptrdiff_t row = how.rows ? how.rows[first_row + t] : first_row + t;
    float* const out = how.out + row * how.stride + column;
    const float* const residual = kResidual ? how.residual + row * how.stride + column : nullptr;
    for (int r = 0; r < width; r += kLanes) {
      F value = load(acc + r);
      if constexpr (kActive) value = activated(value, how.activation);
      if constexpr (kGated) value = mul(value, load(acc + width + r));
      if constexpr (kResidual) value = add(value, load(residual + r));
      store(out + r, value);
    }
  }
}

/// The same with biases, or where a block ends before its columns do.
void finish_part(const Finish& how, const float* acc, int rows, int block, int first_row, int count) {
  const int width = how.gated ? rows / 2 : rows;  // output columns of a block
  const int column = block * width;
  const int valid = how.columns - column < width ? how.columns - column : width;
  for (int t = 0; t < count; ++t) {
    const float* const from = acc + static_cast<ptrdiff_t>(t) * rows;
    const ptrdiff_t row = how.rows ? how.rows[first_row + t] : first_row + t;
    float* const out = how.out + row * how.stride + how.column0 + column;
    const float* const residual =
        how.residual ? how.residual + row * how.stride + how.column0 + column : nullptr;
    for (int r = 0; r < valid; r += kLanes) {
      const int n = valid - r < kLanes ? valid - r : kLanes;
      F value = load(from + r);
      if (how.bias) value = add(value, load_part(how.bias + column + r, n));
      if (how.activation != kNone) value = activated(value, how.activation);
      if (how.gated) {
        F up = load(from + width + r);
        if (how.up_bias) up = add(up, load_part(how.up_bias + column + r, n));
        value = mul(value, up);
      }
      if (residual) value = add(value, load_part(residual + r, n));
      if (n == kLanes)
        store(out + r, value);
      else
        store_part(out + r, value, n);
    }
  }
}

void finish(const Finish& how, const float* acc, int rows, int block, int first_row, int count) {
  const int width = how.gated ? rows / 2 : rows;
  const auto go = [&](auto body) { body(how, acc, rows, block, first_row, count); };
  const bool active = how.activation != kNone, residual = how.residual != nullptr;
  if (how.bias || how.up_bias || (block + 1) * width > how.columns)
    go(finish_part);
  else if (how.gated && active && !residual)
    go(finish_whole<true, true, false>);
  else if (how.gated)
    go(finish_part);
  else if (active)
    go(residual ? finish_whole<false, true, true> : finish_whole<false, true, false>);
  else
    go(residual ? finish_whole<false, false, true> : finish_whole<false, false, false>);
}

}  // namespace
