// The door between callers and the loop: what was handed in and not taken yet, how many are alive, whose
// queue is full, and why nothing is taken any more. Owner: the loop. Thread: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/loop/embedder.h"
#include "engine/loop/sequence.h"

namespace mlxcel {

class Inbox {
 public:
  struct Limits {
    size_t parallel = 1, queue = 0, keys = 1;
  };
  explicit Inbox(const Limits& limits) : limits_(limits) {}

  /// Gives the request its id. Busy, KeyBusy; internal once the engine has stopped.
  uint64_t put(std::unique_ptr<Sequence> sequence);
  void put(std::unique_ptr<EmbedJob> job);
  /// Moves what came over; so many requests.
  size_t collect(std::deque<std::unique_ptr<Sequence>>& waiting, Embedder::Jobs& jobs);
  /// A request of this key runs for the first time, or goes without having run.
  void left_queue(const std::string& key);
  /// Requests and jobs whose last event is out.
  void left(size_t requests, size_t jobs = 0);
  /// Nothing new from now on.
  void refuse_new();
  /// The same for good; the first reason counts.
  void stop(const std::string& why);
  std::optional<std::string> failure() const;
  /// True when nothing is alive before the timeout.
  bool wait_until_empty(double timeout_s);
  int size() const;  // requests not taken yet

 private:
  void check_open() const;

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  std::vector<std::unique_ptr<Sequence>> requests_;
  std::vector<std::unique_ptr<EmbedJob>> jobs_;
  size_t alive_ = 0;                                      // requests whose last event is not out
  size_t queued_ = 0;                                     // of these, those that have never run
  std::map<std::string, size_t, std::less<>> queued_of_;  // by key
  size_t jobs_alive_ = 0;
  uint64_t next_id_ = 1;
  bool draining_ = false;
  std::optional<std::string> failure_;
};

}  // namespace mlxcel
