// Which requests run, as llama-server's slots: a row takes the lowest free place with its first progress and
// gives it back when it ends. Places are numbers for clients to look at; prefixes live in one pool, not in
// slots. Owner: the service. Thread: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "sample/sampler.h"

namespace mlxcel {

struct SlotState {
  bool busy = false;
  uint64_t task = 0;
  int prompt_tokens = 0, cached_tokens = 0, generated = 0, max_tokens = -1;
  SamplingParams params;
};

class SlotBoard {
 public:
  explicit SlotBoard(int count) : slots_(static_cast<size_t>(count > 0 ? count : 1)) {}

  /// A place's number. More rows than places share the last one (an engine may overlap by a step).
  int take(SlotState state) {
    const std::lock_guard lock(mutex_);
    state.busy = true;
    state.task = ++tasks_;
    size_t place = slots_.size() - 1;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].busy) continue;
      place = i;
      break;
    }
    slots_[place] = std::move(state);
    return static_cast<int>(place);
  }
  void progress(int place, int generated) {
    const std::lock_guard lock(mutex_);
    slots_.at(static_cast<size_t>(place)).generated = generated;
  }
  void give_back(int place) {
    const std::lock_guard lock(mutex_);
    slots_.at(static_cast<size_t>(place)).busy = false;
  }
  std::vector<SlotState> all() const {
    const std::lock_guard lock(mutex_);
    return slots_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<SlotState> slots_;
  uint64_t tasks_ = 0;
};

}  // namespace mlxcel
