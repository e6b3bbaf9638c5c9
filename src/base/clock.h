// Time spans for timings and schedules. Thread: any.
#pragma once

#include <chrono>

namespace mlxcel {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

inline double milliseconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}
inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace mlxcel
