#include "engine/loop/inbox.h"

#include <algorithm>
#include <chrono>

namespace mlxcel {

void Inbox::check_open() const {
  if (failure_) fail(ErrorKind::internal, "{}", *failure_);
  if (draining_) throw Busy("the engine is shutting down: no new requests");
}

uint64_t Inbox::put(std::unique_ptr<Sequence> sequence) {
  const std::lock_guard lock(mutex_);
  check_open();
  if (alive_ >= limits_.parallel + limits_.queue)
    throw Busy(fmt::format("the queue is full: {} requests run or wait", alive_));
  const auto of_key = queued_of_.find(sequence->request.key);
  const size_t waiting = of_key == queued_of_.end() ? 0 : of_key->second;
  const size_t ran = alive_ - queued_;
  const size_t share = std::max<size_t>(1, limits_.queue / std::max<size_t>(1, limits_.keys));
  if (limits_.keys > 1 && waiting >= share + limits_.parallel - std::min(limits_.parallel, ran))
    throw KeyBusy(fmt::format("{} requests of this key wait: that is its share of the queue", waiting));
  const uint64_t id = sequence->id = next_id_++;
  ++alive_;
  ++queued_;
  ++queued_of_[sequence->request.key];
  requests_.push_back(std::move(sequence));
  return id;
}

void Inbox::put(std::unique_ptr<EmbedJob> job) {
  const std::lock_guard lock(mutex_);
  check_open();
  if (jobs_alive_ >= limits_.queue + 1)
    throw Busy(fmt::format("the queue is full: {} embedding requests wait", jobs_alive_));
  ++jobs_alive_;
  jobs_.push_back(std::move(job));
}

size_t Inbox::collect(std::deque<std::unique_ptr<Sequence>>& waiting, Embedder::Jobs& jobs) {
  const std::lock_guard lock(mutex_);
  const size_t count = requests_.size();
  for (auto& sequence : requests_) waiting.push_back(std::move(sequence));
  requests_.clear();
  for (auto& job : jobs_) jobs.push_back(std::move(job));
  jobs_.clear();
  return count;
}

void Inbox::left_queue(const std::string& key) {
  const std::lock_guard lock(mutex_);
  --queued_;
  const auto of_key = queued_of_.find(key);
  if (of_key != queued_of_.end() && --of_key->second == 0) queued_of_.erase(of_key);
}

void Inbox::left(size_t requests, size_t jobs) {
  const std::lock_guard lock(mutex_);
  alive_ -= requests;
  jobs_alive_ -= jobs;
  if (alive_ == 0 && jobs_alive_ == 0) emptied_.notify_all();
}

void Inbox::refuse_new() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Inbox::stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
}

std::optional<std::string> Inbox::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Inbox::wait_until_empty(double timeout_s) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_for(lock, std::chrono::duration<double>(std::clamp(timeout_s, 0.0, 1e6)),
                           [this] { return alive_ == 0 && jobs_alive_ == 0; });
}

int Inbox::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(requests_.size());
}

}  // namespace mlxcel
