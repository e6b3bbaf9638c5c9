// The bodies of the row-wise operations (elementwise.h), one table a tier. Plain C types only.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mlxcel::kernels {

struct RowwiseBodies {
  /// `rows` rows of `width`; weight may be null.
  void (*rms_norm)(const float* x, const float* weight, float eps, float offset, int rows, int width,
                   float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int rows, int width,
                     float* out);
  /// `heads` heads of one token; cosines and sines [half], already multiplied by the scale.
  void (*rope)(const float* x, const float* cosines, const float* sines, int heads, int head_dim, int half,
               bool interleaved, float* out);
  void (*activate)(const float* x, int activation, size_t count, float* out);
  /// activation(gate) * up
  void (*gate)(const float* gate, const float* up, int activation, size_t count, float* out);
};

/// The bodies of the instruction set in use.
const RowwiseBodies& rowwise_bodies();

const RowwiseBodies& rowwise_generic();
#if defined(__x86_64__)
const RowwiseBodies& rowwise_avx2();
const RowwiseBodies& rowwise_avx512();
#endif

}  // namespace mlxcel::kernels
