// Primitives that walk a row's tokens in order: causal depthwise convolution and the Mamba-2 scan.
// Rows are ragged: `offsets` [rows + 1] on the host marks each row's tokens in the step.
// One sequential order for every length on CPU, so chunking a prompt changes no bit.
// Thread: model thread (graph building). Reference: transformers Mamba2Mixer (torch_forward), mlx-lm ssm.
#pragma once

#include <utility>
#include <vector>

#include "kernels/matrix.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

/// x [tokens, channels], weight [channels, taps] (1 to 16 taps), bias [channels] or none, state [rows, taps - 1, channels]
/// (the inputs before the row's first token) -> {activation(y) [tokens, channels], new state}.
std::pair<array, array> causal_conv(const array& x, const array& weight, const std::optional<array>& bias,
                                    const array& state, const std::vector<int>& offsets, Activation activation);

/// Mamba-2 recurrence h = exp(dt * a) h + dt * B x, y = C h + d x.
/// x [tokens, heads, head_dim], dt [tokens, heads] (after softplus and limits), a [heads] (negative),
/// b, c [tokens, groups, state_dim], d [heads], state [rows, heads, head_dim, state_dim] f32
/// -> {y [tokens, heads, head_dim], new state}.
std::pair<array, array> ssm_scan(const array& x, const array& dt, const array& a, const array& b, const array& c,
                                 const array& d, const array& state, const std::vector<int>& offsets);

}  // namespace mlxcel::kernels
