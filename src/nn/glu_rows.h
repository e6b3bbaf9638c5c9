// Gated units of a row in plain memory, for phases (nn/phases.h): the bits of their operators, which build
// graph. Thread: workers of the pool.
#pragma once

#include "nn/glu.h"

namespace mlxcel {

/// ClampedGlu of a row: gate and up [width] to out [width], which is neither.
void clamped_row(const ClampedGlu& glu, const float* gate, const float* up, int width, float* out);

/// out = activation(x); out may be x.
void active_row(const float* x, Activation activation, int width, float* out);

}  // namespace mlxcel
