// Slots as llama-server has them: a row takes one while it runs; what it held stays known under its number,
// for save, restore and erase. Memory itself lies in the prompt cache. Owner: the loop. Thread: model thread.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace mlxcel {

class Slots {
 public:
  struct Slot {
    bool busy = false;
    std::string scope = {};
    std::vector<TokenId> tokens = {};  // of a kept prefix that may have gone meanwhile
  };

  explicit Slots(int count) : slots_(static_cast<size_t>(count)) {}
  bool known(int slot) const { return slot >= 0 && static_cast<size_t>(slot) < slots_.size(); }
  Slot& at(int slot) { return slots_.at(static_cast<size_t>(slot)); }
  /// Takes the slot that is wanted, else (-1) the first that is free; -1 where there is none.
  int take(int wanted) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].busy || (wanted >= 0 && static_cast<size_t>(wanted) != i)) continue;
      slots_[i] = {.busy = true};
      return static_cast<int>(i);
    }
    return -1;
  }
  /// The row in it has ended, or goes back to the queue.
  void give_back(int slot, std::string scope = {}, std::vector<TokenId> tokens = {}) {
    if (known(slot)) at(slot) = {false, std::move(scope), std::move(tokens)};
  }

 private:
  std::vector<Slot> slots_;
};

}  // namespace mlxcel
