// Responses and conversations kept in memory, bounded by entries, bytes and time; each belongs to the key
// that made it. Owner: the service. Thread: any.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/options.h"

namespace mlxcel {

struct StoredResponse {
  std::string json;                         // the object
  std::vector<std::string> turns;           // the conversation up to and with it, without instructions
  std::shared_ptr<std::atomic<bool>> stop;  // while it runs
};

class ResponseStore {
 public:
  explicit ResponseStore(StoreLimits limits) : limits_(limits) {}

  void put(const std::string& id, const std::string& key, StoredResponse entry);
  /// Nothing for unknown ids, ids of another key, and what has expired.
  std::optional<StoredResponse> get(const std::string& id, const std::string& key);
  bool erase(const std::string& id, const std::string& key);
  /// The newest object of this key in which `text` stands.
  std::optional<std::string> find_text(const std::string& text, const std::string& key);

 private:
  struct Entry {
    std::string key;
    StoredResponse value;
    size_t bytes = 0;
    TimePoint since;
    std::list<std::string>::iterator order;
  };
  void drop(std::map<std::string, Entry>::iterator entry);
  void make_room();

  const StoreLimits limits_;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::list<std::string> order_;  // oldest use first
  size_t bytes_ = 0;
};

}  // namespace mlxcel
