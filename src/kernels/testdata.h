// Arrays that the room's tests compute with. Thread: model thread.
#pragma once

#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <cstdint>

#include "tensor/tensor.h"

namespace mlxcel::kernels {

/// In one piece, with its values there.
inline array evaluated(array a) {
  a = mx::contiguous(a);
  mx::eval(a);
  return a;
}

inline array normal(const Shape& shape, uint64_t seed) {
  return evaluated(mx::random::normal(shape, mx::float32, 0.0f, 1.0f, mx::random::key(seed)));
}

}  // namespace mlxcel::kernels
