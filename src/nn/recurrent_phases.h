// What recurrent mixers share when they say their work as phases (nn/phases.h): the short convolution, the
// scan over a row's tokens. Owner: a step. Thread: model thread; the work itself on the pool.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "kernels/program_work.h"
#include "nn/phases.h"

namespace mlxcel {

/// x [tokens, channels] through the convolution of recurrent `slot`; weight [channels, taps].
PhaseList::Slot conv_phase(PhaseList& list, PhaseList::Slot x, int channels, const array& weight,
                           const std::optional<array>& bias, int slot, Activation activation);

/// A row of the step as a scan sees it.
struct ScanTokens {
  int row;
  ptrdiff_t first;  // its first token in the step
  int count;
};

/// A value [tokens, width] by walking each row's tokens in order: run(view, tokens, part) for each row and
/// each of `parts`. `state`: the shape of a row's state in `slot`.
PhaseList::Slot scan_phase(PhaseList& list, std::vector<PhaseList::Slot> reads, int width, int parts,
                           int slot,
                           std::function<void(const kernels::WorkView&, const ScanTokens&, int part)> run);

/// One task for each few tokens: run(view, token).
std::vector<PhaseList::Slot> token_phase(PhaseList& list, std::vector<PhaseList::Slot> reads,
                                         std::vector<int> widths,
                                         std::function<void(const kernels::WorkView&, ptrdiff_t token)> run);

/// Constants of such work: evaluated, in one piece, f32.
bool are_constants(std::initializer_list<std::optional<array>> arrays);

}  // namespace mlxcel
