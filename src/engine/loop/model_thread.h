// The one thread that owns MLX in this process: every model is loaded, run and let go here (docs/adr/0002).
// Engines are its guests; it gives each a turn in order, and sleeps when none has work.
// Owner: the process. Started by the first job and never ended: MLX keeps a worker for every thread that
// ever had a stream, so a thread for each engine would pile them up. It sleeps where no engine is left.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace mlxcel {

class ModelThread {
 public:
  class Guest {
   public:
    virtual ~Guest() = default;
    /// One step of work; false when there is none. Must not throw.
    virtual bool turn() = 0;
  };

  static ModelThread& shared();
  ModelThread(const ModelThread&) = delete;
  ModelThread& operator=(const ModelThread&) = delete;

  /// Runs `job` on the thread between two turns and waits; what it throws is thrown here.
  void call(const std::function<void()>& job);
  /// On the thread only (inside call).
  void add(Guest* guest);
  void remove(Guest* guest);
  /// A guest has new work. Any thread.
  void wake();

 private:
  ModelThread() = default;
  void run();
  void take_jobs();

  std::once_flag begun_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  uint64_t wakes_ = 0;
  std::vector<Guest*> guests_;  // the thread's own
};

}  // namespace mlxcel
