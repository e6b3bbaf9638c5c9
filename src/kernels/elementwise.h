// Row-wise primitives on hidden states [tokens, width], f32 on CPU. Each has its native body and its twin
// of plain MLX operations, chosen by kernel_mode(). A row's result does not depend on its neighbours.
// Thread: model thread (graph building).
#pragma once

#include <optional>

#include "kernels/matrix.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

/// x / sqrt(mean(x^2) + eps) * (weight + offset), over the last axis, accumulated in f32.
/// weight [width] or none. x [..., width].
array rms_norm(const array& x, const std::optional<array>& weight, float eps, float offset = 0.0f);

/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis; weight and bias [width] or none.
array layer_norm(const array& x, const std::optional<array>& weight, const std::optional<array>& bias,
                 float eps);

/// Rotates the first `2 * frequencies.size()` entries of each head. x [tokens, heads, head_dim],
/// positions [tokens] int32, frequencies [dims/2] f32 in radians per position, interleaved pairs
/// (2i, 2i+1) or half-split pairs (i, i + dims/2); the rotated part is multiplied by `scale`.
array rope(const array& x, const array& positions, const array& frequencies, bool interleaved,
           float scale = 1.0f);

/// Elementwise activation.
array activate(const array& x, Activation activation);

}  // namespace mlxcel::kernels
