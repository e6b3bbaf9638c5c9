// DRY: the longer a repetition the next token would go on with, the more that token is held back.
// Source: p-e-w, "DRY: a modern repetition penalty" (2024).
// Owner: one per sequence. Thread: model thread; plain memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sample/params.h"

namespace mlxcel {

class Dry {
 public:
  /// `bytes` finds the breakers, which may span tokens; invalid_request without it unless there are none.
  Dry(const SamplingParams& params, std::shared_ptr<const TokenBytes> bytes);
  /// What to take from the logits of which tokens. `history` only ever grows between two calls.
  const std::vector<std::pair<int32_t, float>>& penalties(std::span<const int32_t> history);

 private:
  void follow(std::span<const int32_t> history);

  float multiplier_, base_;
  int allowed_, window_;
  std::vector<std::string> breakers_;
  std::shared_ptr<const TokenBytes> bytes_;
  size_t longest_breaker_ = 0;
  size_t seen_ = 0;         // tokens of the history that were looked at
  size_t after_break_ = 0;  // the history's first token behind the last breaker
  std::string tail_;        // last bytes, one less than the longest breaker
  std::vector<int> lengths_;
  std::vector<std::pair<int32_t, float>> result_;
};

}  // namespace mlxcel
