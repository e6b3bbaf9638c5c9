#include "server/reasoning_echo.h"

namespace mlxcel {

void ReasoningEcho::forget_last() {
  const auto found = entries_.find(order_.back());
  bytes_ -= size_of(found->first, found->second.thought);
  entries_.erase(found);
  order_.pop_back();
}

void ReasoningEcho::keep(const std::string& key, const std::string& content, const std::string& thought) {
  if (content.empty() || thought.empty() || thought.size() > most_ / 8) return;
  Name name{key, content};
  const size_t size = size_of(name, thought);
  if (size > most_) return;
  const std::lock_guard lock(mutex_);
  if (const auto known = entries_.find(name); known != entries_.end()) {
    bytes_ -= size_of(name, known->second.thought);
    order_.erase(known->second.place);
    entries_.erase(known);
  }
  while (!order_.empty() && (bytes_ + size > most_ || entries_.size() >= kMostEntries)) forget_last();
  order_.push_front(name);
  bytes_ += size;
  entries_.emplace(std::move(name), Entry{thought, order_.begin()});
}

std::string ReasoningEcho::find(const std::string& key, const std::string& content) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({key, content});
  if (found == entries_.end()) return "";
  order_.splice(order_.begin(), order_, found->second.place);
  return found->second.thought;
}

size_t ReasoningEcho::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace mlxcel
