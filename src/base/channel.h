// A bounded-or-not queue between threads: push from any thread, pop blocks until something comes or the
// channel is closed and empty. Plain values only.
// Owner: shared by the two sides (shared_ptr, or one side outliving the other). Thread: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace mlxcel {

template <class T>
class Channel {
 public:
  /// `capacity` 0: no bound.
  explicit Channel(size_t capacity = 0) : capacity_(capacity) {}

  /// Never blocks. False when the channel is full or closed; the value is then dropped.
  bool push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || (capacity_ != 0 && items_.size() >= capacity_)) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  /// The next value; nothing once the channel is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !items_.empty(); });
    return take();
  }

  /// The same, giving up after `timeout`.
  template <class Rep, class Period>
  std::optional<T> pop_for(std::chrono::duration<Rep, Period> timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [this] { return closed_ || !items_.empty(); });
    return take();
  }

  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take();
  }

  /// No more pushes; what is inside may still be popped.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace mlxcel
