#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace mlxcel {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

StopMatcher::Result StopMatcher::push(std::string_view piece) {
  Result result;
  if (stopped_) return result;
  held_ += piece;
  // The match that ends first, the longest of those that end there: so the result does not depend on how the
  // text was cut into pieces.
  size_t begin = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
      begin = at;
      end = at + stop.size();
      result.stop = stop;
    }
  }
  if (end != std::string::npos) {
    stopped_ = true;
    result.stopped = true;
    result.text = held_.substr(0, begin);
    held_.clear();
    return result;
  }
  size_t hold = 0;  // the longest tail that begins a stop
  for (const std::string& stop : stops_) {
    const size_t longest = std::min(held_.size(), stop.size() - 1);
    for (size_t size = longest; size > hold; --size) {
      if (std::string_view(held_).substr(held_.size() - size) == std::string_view(stop).substr(0, size))
        hold = size;
    }
  }
  result.text = held_.substr(0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return result;
}

std::string StopMatcher::finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

}  // namespace mlxcel
