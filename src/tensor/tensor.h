// Our words over mlx::core: the names every room uses for arrays, shapes and dtypes.
// Thread: graphs are built and evaluated on the model thread only (docs/adr/0002); evaluated arrays cross.
#pragma once

#include <mlx/array.h>
#include <mlx/dtype.h>
#include <mlx/ops.h>

#include <string>

namespace mlxcel {

namespace mx = mlx::core;
using mx::array;
using mx::Shape;

/// "[2048, 1024]", for messages.
std::string to_string(const Shape& shape);

/// Which form of each operation runs: our CPU kernels, or the plain MLX graph that a GPU runs.
enum class KernelMode { native, reference };

/// MLXCEL_KERNELS (`native` by default on CPU, always `reference` on a GPU), read once.
KernelMode kernel_mode();
/// Overrides it for the models loaded from now on; for tests. Not while a model is running.
void set_kernel_mode(KernelMode mode);

}  // namespace mlxcel
