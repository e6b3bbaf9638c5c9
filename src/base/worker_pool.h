// The workers that CPU kernels share: they spin briefly after a region, then yield, then park.
// Owner: one pool a process (`WorkerPool::shared()`), created on first use.
// Thread: one region at a time; the caller of run() is worker 0 (on the hot path MLX's stream thread).
// Failure: an exception in worker 0's body leaves run() after the others have finished; a body must not
// throw on other workers (std::terminate).
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace mlxcel {

class WorkerPool {
 public:
  using Body = std::function<void(int worker, int width)>;

  /// A pool of `threads` workers, the caller of run() counted. Workers are pinned inside the process's
  /// affinity mask where the platform allows.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Runs body(worker, width) on every worker and returns when all have finished. Nested calls run
  /// serially on the calling worker with width 1.
  void run(const Body& body);

  /// Waits inside a region until every worker has arrived.
  void barrier();

  int width() const;

  /// Lets the workers sleep at once (no active sequence); the next run() wakes them.
  void park();

  /// The process's pool. `set_shared_threads` before first use fixes its width; default: the cores of
  /// the affinity mask and cgroup quota, less one for HTTP when there are four or more.
  static WorkerPool& shared();
  static void set_shared_threads(int threads);
  static int default_threads();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Splits `count` items over `width` workers in contiguous runs; returns [begin, end) of `worker`.
inline std::pair<int, int> share(int count, int worker, int width) {
  const long long n = count;
  return {static_cast<int>(n * worker / width), static_cast<int>(n * (worker + 1) / width)};
}

}  // namespace mlxcel
