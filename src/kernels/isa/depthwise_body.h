// Depthwise convolutions over the vector words and vector_math.h of whichever tier was included before: a
// channel's taps in order from its bias on, whatever stands beside an output.
#pragma once

#include "kernels/isa/depthwise.h"

namespace {

/// kCount outputs, one vector of channels: a tap's weights are loaded once for all of them.
template <int kCount>
MLXCEL_INLINE void depthwise_tile(const mlxcel::kernels::DepthwiseRun& r, const float* x, float* out,
                                  int channel, int n) {
  using mlxcel::kernels::kDepthwiseBlock;
  const ptrdiff_t step = static_cast<ptrdiff_t>(r.step) * kDepthwiseBlock;
  F sums[kCount];
  const F first = r.bias ? load_part(r.bias + channel, n) : zero();
  for (int i = 0; i < kCount; ++i) sums[i] = first;
  const float* weight = r.weight + channel;
  for (int k = 0; k < r.taps; ++k, weight += kDepthwiseBlock) {
    const F w = load(weight);
    const float* from = x + static_cast<ptrdiff_t>(r.slot[k]) * kDepthwiseBlock + channel;
    for (int i = 0; i < kCount; ++i) sums[i] = fma(load(from + i * step), w, sums[i]);
  }
  for (int i = 0; i < kCount; ++i) {
    const F value = activated(sums[i], r.activation);
    float* const to = out + i * r.stride + channel;
    // Stores under a mask are slow on some machines.
    if (n == kLanes)
      store(to, value);
    else
      store_part(to, value, n);
  }
}

template <int kCount>
MLXCEL_INLINE void depthwise_outputs(const mlxcel::kernels::DepthwiseRun& r, int first) {
  const float* const x = r.x + static_cast<ptrdiff_t>(first) * r.step * mlxcel::kernels::kDepthwiseBlock;
  float* const out = r.out + first * r.stride;
  for (int c = 0; c < r.channels; c += kLanes)
    depthwise_tile<kCount>(r, x, out, c, r.channels - c < kLanes ? r.channels - c : kLanes);
}

void depthwise_run(const mlxcel::kernels::DepthwiseRun& r) {
  int i = 0;
  for (; i + 8 <= r.outputs; i += 8) depthwise_outputs<8>(r, i);
  for (; i + 4 <= r.outputs; i += 4) depthwise_outputs<4>(r, i);
  for (; i < r.outputs; ++i) depthwise_outputs<1>(r, i);
}

void depthwise_copy(const float* x, ptrdiff_t stride, int count, int channels, float* slots) {
  using mlxcel::kernels::kDepthwiseBlock;
  if (channels == kDepthwiseBlock) {
    for (int i = 0; i < count; ++i, x += stride, slots += kDepthwiseBlock)
      for (int c = 0; c < kDepthwiseBlock; c += kLanes) store(slots + c, load(x + c));
    return;
  }
  for (int i = 0; i < count; ++i, x += stride, slots += kDepthwiseBlock)
    for (int c = 0; c < kDepthwiseBlock; c += kLanes) {
      const int left = channels - c;
      store(slots + c, left <= 0 ? zero() : load_part(x + c, left < kLanes ? left : kLanes));
    }
}

constexpr mlxcel::kernels::DepthwiseBodies kDepthwise{.run = depthwise_run, .copy = depthwise_copy};

}  // namespace
