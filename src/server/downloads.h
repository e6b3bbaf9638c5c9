// Models on their way into the store: one thread each, one download of a model at a time, anybody may listen.
// Owner: the front service. Thread: any; listeners are called on the download's thread and must only hand
// over. Failure: told to the listeners.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace mlxcel {

class Downloads {
 public:
  struct News {
    std::string status;            // what Ollama's clients print
    std::string file;              // empty: of the whole model
    uint64_t total = 0, done = 0;  // bytes of that file
    bool last = false;
    std::string error;  // last: empty when the model is there
  };
  using Listener = std::function<void(const News&)>;

  Downloads() = default;
  ~Downloads();  // cancels and waits

  /// Begins a download into the store at `root`, or listens to one that runs. Throws invalid_request for a
  /// name that is no repository's, Refusal 503 when too many run, Refusal 400 without a network.
  void start(const std::filesystem::path& root, const std::string& model, Listener listener);
  /// False when no such download runs. It ends soon, with an error.
  bool cancel(const std::string& model);
  std::vector<std::string> running() const;

 private:
  struct Job {
    std::atomic<bool> cancelled{false};
    std::mutex mutex;
    std::vector<Listener> listeners;
    News latest;
    bool over = false;
    std::thread thread;
  };
  class Observer;
  static void tell(Job& job, News news);
  void run(const std::filesystem::path& root, const std::string& model, const std::shared_ptr<Job>& job);
  void join_finished();

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Job>> jobs_;
  std::vector<std::shared_ptr<Job>> finished_;
};

}  // namespace mlxcel
