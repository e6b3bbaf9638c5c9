// The bodies of depthwise convolutions (convolution_plan.h), one table a tier. Plain C types only.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mlxcel::kernels {

inline constexpr int kDepthwiseBlock = 32;  // channels that are computed together

/// A run of outputs along the fastest axis, of one block of channels.
struct DepthwiseRun {
  const float* x;  // [slots, kDepthwiseBlock]: inputs that lie near each other, zeros where there are none
  const float* weight;  // [taps, kDepthwiseBlock]
  const float* bias;    // [channels] or null
  const int* slot;      // [taps]: where a tap of the first output lies
  float* out;           // of the first output, at the block's first channel
  ptrdiff_t stride;     // of out, in floats
  int taps, outputs;
  int step;  // slots from an output to the next
  int channels, activation;
};

struct DepthwiseBodies {
  void (*run)(const DepthwiseRun& run);
  /// `count` positions of `channels` floats, `stride` floats apart, to slots; zeros behind the channels.
  void (*copy)(const float* x, ptrdiff_t stride, int count, int channels, float* slots);
};

const DepthwiseBodies& depthwise_generic();
#if defined(__x86_64__)
const DepthwiseBodies& depthwise_avx2();
const DepthwiseBodies& depthwise_avx512();
#endif

}  // namespace mlxcel::kernels
