#include <chrono>

#include "server/connection.h"

namespace mlxcel {

bool ConnectionHub::add(const std::shared_ptr<ConnectionControl>& connection) {
  const std::lock_guard lock(mutex_);
  if (connections_.size() >= limits.connections) return false;
  connections_.emplace(connection.get(), connection);
  router.service().metrics().connections = static_cast<int>(connections_.size());
  return true;
}

void ConnectionHub::remove(ConnectionControl* connection) {
  const std::lock_guard lock(mutex_);
  connections_.erase(connection);
  router.service().metrics().connections = static_cast<int>(connections_.size());
  if (connections_.empty()) empty_.notify_all();
}

std::vector<std::shared_ptr<ConnectionControl>> ConnectionHub::all() const {
  std::vector<std::shared_ptr<ConnectionControl>> out;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, weak] : connections_) {
    if (auto connection = weak.lock()) out.push_back(std::move(connection));
  }
  return out;
}

void ConnectionHub::drain_all() {
  draining = true;
  for (const auto& connection : all()) connection->drain();
}

void ConnectionHub::cut_all(const std::string& reason) {
  for (const auto& connection : all()) connection->cut(reason);
}

bool ConnectionHub::wait_empty(double seconds) {
  std::unique_lock lock(mutex_);
  return empty_.wait_for(lock, std::chrono::duration<double>(seconds),
                         [this] { return connections_.empty(); });
}

size_t ConnectionHub::size() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

}  // namespace mlxcel
