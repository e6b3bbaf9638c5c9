// Answers that go round in circles. Source: features.md's loop detection. Thread: any; plain memory.
#pragma once

#include <algorithm>
#include <span>

#include "engine/engine.h"

namespace mlxcel {

/// Whether `answer` ends with a pattern of min_pattern to max_pattern tokens that stands there min_count
/// times.
inline bool goes_in_circles(std::span<const TokenId> answer, const LoopDetection& loops) {
  for (int size = std::max(loops.min_pattern, 1); size <= loops.max_pattern; ++size) {
    const size_t length = static_cast<size_t>(size) * static_cast<size_t>(std::max(loops.min_count, 2));
    if (length > answer.size()) return false;
    const auto end = answer.last(length);
    if (std::equal(end.begin() + size, end.end(), end.begin())) return true;
  }
  return false;
}

}  // namespace mlxcel
