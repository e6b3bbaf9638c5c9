// The workers that CPU kernels share: they spin briefly after a region, then yield, then park.
// Owner: one pool a process (`WorkerPool::shared()`), created on first use and never destroyed.
// Thread: run() from any thread, one region at a time; its caller is worker 0 (on the hot path MLX's
// stream thread).
// Failure: an exception in worker 0's body leaves run() after the others have finished, so a body that
// meets at a barrier must not throw; no body may throw on other workers (std::terminate).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
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
  /// serially on the calling worker with width 1. A second thread's call waits for the first's region.
  void run(const Body& body) {
    call(&body, [](const void* b, int w, int n) { (*static_cast<const Body*>(b))(w, n); });
  }
  /// The same without the cost of a std::function.
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, Body> && std::is_invocable_v<const F&, int, int>)
  void run(const F& body) {
    call(&body, [](const void* b, int w, int n) { (*static_cast<const F*>(b))(w, n); });
  }

  /// Runs body(worker, width) on the caller, and on those workers that turn up before the caller's own call
  /// has returned: for work that each takes from a shared counter until none is left. Where other processes
  /// keep a worker from its CPU, the region does not wait for it. No barrier inside.
  template <class F>
  void run_loose(const F& body) {
    call(&body, [](const void* b, int w, int n) { (*static_cast<const F*>(b))(w, n); }, true);
  }
  /// visit(begin, end) over [0, count) in pieces of `grain`, loosely.
  template <class Visit>
  void each(int count, int grain, const Visit& visit) {
    std::atomic<int64_t> next{0};
    run_loose([&](int, int) {
      for (int64_t begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < count;)
        visit(static_cast<int>(begin), static_cast<int>(begin + grain < count ? begin + grain : count));
    });
  }

  /// Waits inside a region until every worker has arrived. Nothing to wait for in a nested region.
  void barrier();

  int width() const;

  /// Lets the workers sleep at once (no active sequence); the next run() wakes them.
  void park();

  /// For the threads that call run() on the hot path (MLX's, the model's): moves them off the CPUs that
  /// the other workers are pinned to. Once a thread; later calls cost a thread-local read.
  void settle_caller();

  /// The process's pool. `set_shared_threads` before first use fixes its width; default: the cores of
  /// the affinity mask and cgroup quota, less one for HTTP when there are four or more.
  static WorkerPool& shared();
  static void set_shared_threads(int threads);
  static int default_threads();

 private:
  void call(const void* body, void (*invoke)(const void*, int, int), bool loose = false);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Cores that a cgroup's cpu.max line ("200000 100000", "max 100000") grants, rounded up; 0: no limit.
int cores_of_cpu_max(const std::string& line);

/// Splits `count` items over `width` workers in contiguous runs; returns [begin, end) of `worker`.
inline std::pair<int, int> share(int count, int worker, int width) {
  const long long n = count;
  return {static_cast<int>(n * worker / width), static_cast<int>(n * (worker + 1) / width)};
}

}  // namespace mlxcel
