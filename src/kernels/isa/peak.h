// The arithmetic of the products with everything in registers: what a core's units can do at most.
// One table a set; plain C types only.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mlxcel::kernels {

struct PeakBodies {
  /// `steps` steps of the widest tile, of unsigned by signed bytes, pairs of int16, f32; multiply-adds done.
  /// `sink` takes what came out (1 KiB). Byte products of a set without any: 0.
  uint64_t (*bytes)(uint64_t steps, uint8_t* sink);
  uint64_t (*pairs)(uint64_t steps, uint8_t* sink);
  uint64_t (*floats)(uint64_t steps, uint8_t* sink);
};

const PeakBodies& peak_generic();
#if defined(__x86_64__)
const PeakBodies& peak_avx2();
const PeakBodies& peak_avx512();
#elif defined(__aarch64__)
const PeakBodies& peak_neon();
const PeakBodies& peak_i8mm();
#endif

}  // namespace mlxcel::kernels
