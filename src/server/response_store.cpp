#include "server/response_store.h"

namespace mlxcel {

void ResponseStore::drop(std::map<std::string, Entry>::iterator entry) {
  bytes_ -= entry->second.bytes;
  order_.erase(entry->second.order);
  entries_.erase(entry);
}

void ResponseStore::make_room() {
  const auto now = Clock::now();
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (seconds_between(it->second.since, now) > limits_.seconds) drop(it);
    it = next;
  }
  while (!order_.empty() && (entries_.size() > limits_.entries || bytes_ > limits_.bytes))
    drop(entries_.find(order_.front()));
}

void ResponseStore::put(const std::string& id, const std::string& key, StoredResponse value) {
  const std::lock_guard lock(mutex_);
  if (const auto old = entries_.find(id); old != entries_.end()) drop(old);
  Entry entry;
  entry.key = key;
  entry.bytes = value.json.size() + id.size();
  for (const auto& turn : value.turns) entry.bytes += turn.size();
  entry.value = std::move(value);
  entry.since = Clock::now();
  bytes_ += entry.bytes;
  entry.order = order_.insert(order_.end(), id);
  entries_.emplace(id, std::move(entry));
  make_room();
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  make_room();
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.key != key) return std::nullopt;
  order_.splice(order_.end(), order_, found->second.order);
  return found->second.value;
}

std::optional<std::string> ResponseStore::find_text(const std::string& text, const std::string& key) {
  const std::lock_guard lock(mutex_);
  make_room();
  for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
    const Entry& entry = entries_.at(*id);
    if (entry.key == key && entry.value.json.find(text) != std::string::npos) return entry.value.json;
  }
  return std::nullopt;
}

bool ResponseStore::erase(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.key != key) return false;
  if (found->second.value.stop) *found->second.value.stop = true;
  drop(found);
  return true;
}

}  // namespace mlxcel
