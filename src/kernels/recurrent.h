// Primitives that walk a row's tokens in order: causal depthwise convolution, the scans of Mamba 1 and 2, the
// delta rule, a gated sum.
// Rows are ragged: `offsets` [rows + 1] on the host marks each row's tokens in the step.
// One sequential order for every length on CPU, so chunking a prompt changes no bit.
// Thread: model thread (graph building). Reference: transformers Mamba2Mixer (torch_forward), mlx-lm ssm;
// Mamba (Gu & Dao 2023), gated delta rule (Yang et al. 2024), RWKV-7 (Peng et al. 2025), Griffin (De et al.
// 2024).
#pragma once

#include <utility>
#include <vector>

#include "kernels/matrix.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

struct RecurrentBodies;
/// Those of the instruction set in use (isa/recurrent.h).
const RecurrentBodies& recurrent_bodies();

/// x [tokens, channels], weight [channels, taps] (1 to 16 taps), bias [channels] or none, state [rows, taps -
/// 1, channels] (the inputs before the row's first token) -> {activation(y) [tokens, channels], new state}.
std::pair<array, array> causal_conv(const array& x, const array& weight, const std::optional<array>& bias,
                                    const array& state, const std::vector<int>& offsets,
                                    Activation activation);

/// Mamba-2 recurrence h = exp(dt * a) h + dt * B x, y = C h + d x.
/// x [tokens, heads, head_dim], dt [tokens, heads] (after softplus and limits), a [heads] (negative),
/// b, c [tokens, groups, state_dim], d [heads], state [rows, heads, head_dim, state_dim] f32
/// -> {y [tokens, heads, head_dim], new state}.
std::pair<array, array> ssm_scan(const array& x, const array& dt, const array& a, const array& b,
                                 const array& c, const array& d, const array& state,
                                 const std::vector<int>& offsets);

/// Mamba-1 recurrence, every channel on its own: h = exp(dt * a) h + dt * x b, y = c h + d x.
/// x, dt [tokens, channels] (dt after softplus), a [channels, state_dim] (negative), b, c [tokens,
/// state_dim], d [channels], state [rows, channels, state_dim] -> {y [tokens, channels], new state}.
std::pair<array, array> selective_scan(const array& x, const array& dt, const array& a, const array& b,
                                       const array& c, const array& d, const array& state,
                                       const std::vector<int>& offsets);

/// A matrix state S per head, decayed by column and changed by one column pattern:
///   S = S diag(decay) + (S read) write^T + value key^T,  y = S query
/// The gated delta rule is read = -decay * k, write = key = beta * k; RWKV-7 has its own read and write.
/// decay, read, write, key, query [tokens, heads, key_dim], value [tokens, heads, value_dim],
/// state [rows, heads, value_dim, key_dim] -> {y [tokens, heads, value_dim], new state}.
struct DeltaInputs {
  array decay, read, write, key, query, value;
};
std::pair<array, array> delta_scan(const DeltaInputs& in, const array& state,
                                   const std::vector<int>& offsets);

/// h = decay * h + x, per channel: x, decay [tokens, channels], state [rows, channels]
/// -> {h [tokens, channels], new state}.
std::pair<array, array> gated_sum(const array& x, const array& decay, const array& state,
                                  const std::vector<int>& offsets);

}  // namespace mlxcel::kernels
