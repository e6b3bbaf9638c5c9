// Which requests run, as llama-server's slots, for clients to look at: a row stands under the engine's number
// from its first progress to its end. Owner: the service. Thread: any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "sample/sampler.h"

namespace mlxcel {

struct SlotState {
  bool busy = false;
  uint64_t task = 0;
  int prompt_tokens = 0, cached_tokens = 0, processed_tokens = 0, generated = 0, max_tokens = -1;
  SamplingParams params;
  std::string prompt = {};  // its text, where it may be shown
};

class SlotBoard {
 public:
  explicit SlotBoard(int count) : slots_(static_cast<size_t>(std::max(count, 1))) {}

  /// The row's number for progress() and give_back(). A row that was there before has ended, though its last
  /// words may still be on their way.
  uint64_t take(int place, SlotState state) {
    const std::lock_guard lock(mutex_);
    state.busy = true;
    state.task = ++tasks_;
    slots_.at(static_cast<size_t>(place)) = std::move(state);
    return tasks_;
  }
  /// So many of the prompt's tokens are evaluated, so many were generated.
  void progress(int place, uint64_t task, int processed, int generated) {
    const std::lock_guard lock(mutex_);
    SlotState& slot = slots_.at(static_cast<size_t>(place));
    if (slot.task != task) return;
    slot.processed_tokens = processed;
    slot.generated = generated;
  }
  void give_back(int place, uint64_t task) {
    const std::lock_guard lock(mutex_);
    SlotState& slot = slots_.at(static_cast<size_t>(place));
    if (slot.task == task) slot.busy = false;
  }
  std::vector<SlotState> all() const {
    const std::lock_guard lock(mutex_);
    return slots_;
  }
  int count() const { return static_cast<int>(slots_.size()); }

 private:
  mutable std::mutex mutex_;
  std::vector<SlotState> slots_;
  uint64_t tasks_ = 0;
};

}  // namespace mlxcel
