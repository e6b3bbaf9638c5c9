#include "nn/recurrent_phases.h"

#include <algorithm>

#include "kernels/isa/recurrent.h"
#include "kernels/recurrent.h"

namespace mlxcel {

using kernels::WorkView;

bool are_constants(std::initializer_list<std::optional<array>> arrays) {
  return std::all_of(arrays.begin(), arrays.end(), kernels::Program::is_constant);
}

PhaseList::Slot conv_phase(PhaseList& list, PhaseList::Slot x, int channels, const array& weight,
                           const std::optional<array>& bias, int slot, Activation activation) {
  if (!are_constants({weight, bias})) return PhaseList::kNone;
  Step& step = list.step();
  const array state = step.recurrent(slot);
  const int taps = weight.shape(1), rows = state.shape(0);
  const int blocks = (channels + kernels::kConvBlock - 1) / kernels::kConvBlock;
  const auto run = [weight, bias, channels, taps, blocks, activation, offsets = step.offsets(),
                    body = kernels::recurrent_bodies().conv](const WorkView& v, int task) {
    const auto r = static_cast<size_t>(task / blocks);
    const ptrdiff_t first = offsets[r], held = static_cast<ptrdiff_t>(taps - 1) * channels;
    body({.x = v.read[0] + first * v.stride[0],
          .weight = weight.data<float>(),
          .bias = bias ? bias->data<float>() : nullptr,
          .before = v.from[0] + static_cast<ptrdiff_t>(r) * held,
          .out = v.made[0] + first * channels,
          .after = v.given[0] + static_cast<ptrdiff_t>(r) * held,
          .count = offsets[r + 1] - offsets[r],
          .channels = channels,
          .taps = taps,
          .activation = static_cast<int>(activation),
          .x_stride = v.stride[0]},
         task % blocks);
  };
  return list.work({.reads = {x},
                    .arrays = {mx::astype(state, mx::float32)},
                    .makes = {{step.count(), channels}},
                    .gives = {state.shape()},
                    .tasks = rows * blocks,
                    .grain = 1,
                    .multiply_adds = static_cast<long long>(step.count()) * channels * taps,
                    .run = run},
                   {slot})[0];
}

PhaseList::Slot scan_phase(PhaseList& list, std::vector<PhaseList::Slot> reads, int width, int parts,
                           int slot, std::function<void(const WorkView&, const ScanTokens&, int part)> run) {
  Step& step = list.step();
  const array state = step.recurrent(slot);
  const int rows = state.shape(0);
  return list.work({.reads = std::move(reads),
                    .arrays = {mx::astype(state, mx::float32)},
                    .makes = {{step.count(), width}},
                    .gives = {state.shape()},
                    .tasks = rows * parts,
                    .grain = 1,
                    .multiply_adds = static_cast<long long>(step.count()) *
                                     static_cast<long long>(state.size()) / std::max(1, rows),
                    .run =
                        [parts, run = std::move(run), offsets = step.offsets()](const WorkView& v, int task) {
                          const auto r = static_cast<size_t>(task / parts);
                          run(v, {task / parts, offsets[r], offsets[r + 1] - offsets[r]}, task % parts);
                        }},
                   {slot})[0];
}

std::vector<PhaseList::Slot> token_phase(PhaseList& list, std::vector<PhaseList::Slot> reads,
                                         std::vector<int> widths,
                                         std::function<void(const WorkView&, ptrdiff_t token)> run) {
  const int tokens = list.step().count();
  std::vector<std::pair<int, int>> makes;
  for (const int width : widths) makes.emplace_back(tokens, width);
  return list.work({.reads = std::move(reads),
                    .makes = std::move(makes),
                    .tasks = tokens,
                    .grain = std::clamp(tokens / 8, 1, 16),
                    .run = [run = std::move(run)](const WorkView& v, int task) { run(v, task); }});
}

}  // namespace mlxcel
