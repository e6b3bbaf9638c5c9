// Streams that outlive their connection (X-Conversation-Id): the bytes sent so far, who follows them, how to
// end them. Owner: the service. Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/http.h"

namespace mlxcel {

/// One stream. The first bytes go when it grows beyond its bound.
class StreamLog {
 public:
  explicit StreamLog(int64_t started) : started_(started) {}

  void append(const std::string& bytes);
  void finish(int64_t now);
  /// Sends what was kept from `offset` on and everything that comes; false where that offset is gone.
  bool follow(const std::shared_ptr<Exchange>& exchange, size_t offset, HttpResponse head, int ping_seconds);
  void on_cancel(std::function<void()> cancel);
  void cancel();

  struct State {
    bool done = false;
    size_t total = 0;
    int64_t started = 0, completed = 0;
  };
  State state() const;

 private:
  mutable std::mutex mutex_;
  std::string kept_;
  size_t first_ = 0;  // offset of the first byte kept
  const int64_t started_;
  int64_t completed_ = 0;
  bool done_ = false;
  std::vector<std::weak_ptr<Exchange>> followers_;
  std::function<void()> cancel_;
};

class StreamLogs {
 public:
  /// A fresh log under that id; one that stood there is forgotten.
  std::shared_ptr<StreamLog> begin(const std::string& id, const std::string& key);
  std::shared_ptr<StreamLog> find(const std::string& id, const std::string& key);
  /// A request whose stream cannot begin yet, since its model is loading; `cancel` ends it.
  void park(const std::string& id, const std::string& key, std::function<void()> cancel);
  void unpark(const std::string& id, const std::string& key);
  bool parked(const std::string& id, const std::string& key);
  /// Ends and forgets what stands under that id; false where nothing does.
  bool cancel(const std::string& id, const std::string& key);

 private:
  struct Entry {
    std::shared_ptr<StreamLog> log;
    TimePoint since;
  };
  void forget_old();
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Entry> logs_;
  std::map<std::pair<std::string, std::string>, std::function<void()>> parked_;
};

/// The conversation that a request's stream belongs to; empty: it ends with its connection.
std::string conversation_of(const HttpRequest& request);

/// An exchange that goes on when its connection is gone, as long as the stream is open.
std::shared_ptr<Exchange> recorded(std::shared_ptr<Exchange> exchange, StreamLogs& logs,
                                   const std::string& id);

}  // namespace mlxcel
