// Several models behind one listener (server.md 5.10), or one that sleeps when nobody asks: which there are,
// which are loaded, who leaves when a place is needed. Each has a service and a router of its own; requests
// reach them through the front router. Loading and letting go happen on one thread of the pool's.
// Owner: the application; outlives the server. Thread: any.
// Failure: what a load throws becomes the answer of the requests that waited for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/router.h"

namespace mlxcel {

/// A model that may be served.
struct PoolModel {
  ServiceOptions options;  // model_id, aliases, tags, model_path; defaults of its requests
  std::string source;      // cache, models_dir, preset, single
  bool removable = false, load_on_startup = false;
  bool hidden = false;       // served, but not listed
  double idle_seconds = -1;  // let go after that long without a request; negative: never
  std::function<std::shared_ptr<Engine>()> load;
  std::shared_ptr<Engine> engine = nullptr;  // loaded already
};

struct PoolOptions {
  size_t max_loaded = 4;  // 0: any number
  bool autoload = true;
  bool single = false;       // one model that may sleep; every name means it
  double stop_seconds = 10;  // an unload waits that long for running requests
};

class ModelPool {
 public:
  using Scan = std::function<std::vector<PoolModel>()>;
  ModelPool(Service& front, PoolOptions options, Scan scan);
  ~ModelPool();  // lets every model go
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  /// Looks for models again: new ones appear, those that are gone leave unless they are loaded.
  void rescan();
  const PoolOptions& options() const { return options_; }

  struct View {
    std::string id, source, path, status, error;  // status: unloaded, loading, loaded, sleeping
    std::vector<std::string> aliases, tags;
    bool removable = false, failed = false, hidden = false;
    const Service* service = nullptr;  // lives as long as the pool
  };
  std::vector<View> models() const;
  /// Throws Refusal 404 for a name that no model has.
  View model(const std::string& name) const;

  /// The request goes to its model's router, once that is loaded. False: it belongs to the front itself.
  bool dispatch(const Router& front, const std::shared_ptr<Exchange>& exchange);
  /// Both return at once; throw Refusal for unknown names, and for what is (not) loaded already.
  void load(const std::string& name);
  void unload(const std::string& name);
  /// Ollama's keep_alive, until the model's next load: seconds without a request; negative: stay.
  void keep_alive(const std::string& name, double seconds);
  /// Unloads, waits, forgets. False where there is no such model.
  bool forget(const std::string& name);

  /// Events of GET /models/sse to a stream that is open.
  void subscribe(const std::shared_ptr<Exchange>& exchange);
  void publish(const std::string& model, const std::string& event, const std::string& data_json);

 private:
  enum class Status { unloaded, queued, loading, loaded, unloading };
  struct Waiter {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<bool> left;  // the client has gone
    std::string body;            // the connection forgets it once the request was handed over
  };
  struct Entry {
    PoolModel model;
    std::unique_ptr<Service> service;
    std::unique_ptr<Router> router;
    Status status = Status::unloaded;
    bool slept = false;  // let go for being idle
    int active = 0;      // requests that hold it
    TimePoint used{};
    double idle_seconds = -1;
    std::string error;
    std::vector<Waiter> waiters;
    bool wanted = false;  // again, while it is being let go
    bool stays = false;   // in the queue though nobody waits
    bool drop = false;    // as soon as it is loaded
  };
  using EntryPtr = std::shared_ptr<Entry>;

  EntryPtr find(const std::string& name) const;  // under mutex_; null: unknown
  EntryPtr require(const std::string& name) const;
  void enqueue(const EntryPtr& entry);
  std::shared_ptr<void> lease(const EntryPtr& entry);
  void run();
  bool make_room(std::unique_lock<std::mutex>& lock, const EntryPtr& wanted);
  void load_now(std::unique_lock<std::mutex>& lock, const EntryPtr& entry);
  void unload_now(std::unique_lock<std::mutex>& lock, const EntryPtr& entry, bool slept);
  void wake_waiters(const EntryPtr& entry, std::exception_ptr failure);
  void give_up(const EntryPtr& entry, const std::shared_ptr<bool>& left,
               const std::shared_ptr<Exchange>& waiting, const ApiError& error);
  EntryPtr next_idle(TimePoint now) const;
  View view(const Entry& entry) const;
  void announce(const Entry& entry);

  Service& front_;
  const PoolOptions options_;
  const Scan scan_;
  const Router* front_router_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, EntryPtr> entries_;
  std::vector<EntryPtr> retired_;  // routers that answers may still refer to
  std::deque<EntryPtr> queue_;     // to be loaded, in order
  std::vector<std::weak_ptr<Exchange>> subscribers_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mlxcel
