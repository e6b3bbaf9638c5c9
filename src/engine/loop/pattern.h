// Answers that go round in circles. Source: features.md's loop detection. Thread: any; plain memory.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

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

/// invalid_request naming the field for numbers out of range.
void check_loops(const LoopDetection& loops);
/// "off", "on" (1,20,12), or MIN,MAX,COUNT; invalid_request for anything else.
LoopDetection parse_loop_detection(std::string_view text);
/// MLXCEL_LOOP_DETECTION; nothing where it is unset.
std::optional<LoopDetection> loop_detection_from_environment();
/// The request's own, the environment's, or the family's.
LoopDetection loops_in_force(const Request& request, const std::optional<LoopDetection>& environment,
                             std::string_view model_type);

}  // namespace mlxcel
