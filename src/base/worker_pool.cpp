#include "base/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "base/error.h"
#include "base/pause.h"

namespace mlxcel {
namespace {

constexpr int kMaxThreads = 1024;
// A pause is 40 to 140 cycles; 2000 of them cover the gap between two operations of a step.
constexpr int kPausesBeforeYield = 2000;
// The gap between two tokens must not park the workers: waking one costs 50 us and more.
constexpr auto kSpin = std::chrono::milliseconds(2);

/// Waits until `done()` holds, giving way to other processes after a while.
template <class Done>
void await(const Done& done) {
  for (int i = 0; i < kPausesBeforeYield; ++i) {
    if (done()) return;
    pause_cpu();
  }
  while (!done()) give_way();
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
  return cpus;
}

void restrict_caller(const std::vector<int>& cpus) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  // Pinning is a matter of speed only: where it is refused the thread runs where the system puts it.
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  (void)cpus;
#endif
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Cores granted by the control group of this process and those above it; 0: no limit.
int cgroup_cores() {
  int cores = 0;
  const auto narrow = [&](int limit) {
    if (limit > 0) cores = cores ? std::min(cores, limit) : limit;
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    std::string path = line.substr(3);
    for (;;) {
      narrow(cores_of_cpu_max(first_line("/sys/fs/cgroup" + path + "/cpu.max")));
      const auto slash = path.rfind('/');
      if (slash == std::string::npos || path.size() <= 1) break;
      path.resize(slash);
    }
  }
  narrow(cores_of_cpu_max(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                          first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us")));
  return cores;
}

// WorkerPool::Impl::state: the region's number, whether it takes no more workers, and how many are in it.
constexpr uint64_t kClosed = uint64_t{1} << 31;
constexpr uint64_t kInside = kClosed - 1;
uint32_t number_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
uint64_t state_of(uint32_t number) { return static_cast<uint64_t>(number) << 32; }

std::atomic<int> shared_threads{0};
std::atomic<bool> shared_made{false};

}  // namespace

int cores_of_cpu_max(const std::string& line) {
  std::istringstream in(line);
  long long quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::clamp<long long>((quota + period - 1) / period, 1, kMaxThreads));
}

struct WorkerPool::Impl {
  using Invoke = void (*)(const void*, int, int);

  explicit Impl(int threads) : width(threads) {
    if (threads < 1 || threads > kMaxThreads)
      fail(ErrorKind::invalid_request, "worker pool: expected 1 to {} threads, got {}", kMaxThreads, threads);
    cpus = allowed_cpus();
    if (static_cast<int>(cpus.size()) < width)
      cpus.clear();  // more workers than cores: pinning would stack them
    try {
      for (int worker = 1; worker < width; ++worker) workers.emplace_back([this, worker] { serve(worker); });
    } catch (const std::system_error& error) {
      stop_all();
      fail(ErrorKind::internal, "worker pool: thread {} of {} did not start: {}", workers.size() + 1, width,
           error.what());
    }
  }

  ~Impl() { stop_all(); }

  void stop_all() {
    stop.store(true, std::memory_order_relaxed);
    state.store(state_of(number_of(state.load()) + 1) | kClosed, std::memory_order_release);
    wake();
    for (auto& worker : workers) worker.join();
  }

  void wake() {
    calls.fetch_add(1, std::memory_order_release);
    calls.notify_all();
  }
  void serve(int worker);
  void run(const void* body_now, Invoke invoke_now, bool loose_now);
  void barrier();

  const int width;
  std::vector<int> cpus;  // CPU of each worker; empty: not pinned
  std::vector<std::thread> workers;
  std::mutex region;  // one region at a time

  // Written by worker 0 while no region is open.
  const void* body = nullptr;
  Invoke invoke = nullptr;
  bool loose = false;

  alignas(64) std::atomic<uint64_t> state{kClosed};
  alignas(64) std::atomic<uint32_t> calls{0};  // what parked workers sleep on
  alignas(64) std::atomic<int> running{0};     // workers that a region which is not loose still waits for
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> phase{0};
  alignas(64) std::atomic<bool> sleepy{false};
  std::atomic<bool> stop{false};
};

namespace {
// The region that the current thread works in, and how deep run() is nested in it.
thread_local const void* current_pool = nullptr;
thread_local int depth = 0;
thread_local const void* settled_in = nullptr;
}  // namespace

void WorkerPool::Impl::serve(int worker) {
  if (!cpus.empty()) restrict_caller({cpus[worker]});
  current_pool = this;
  depth = 1;
  uint32_t seen = 0;
  for (;;) {
    const auto moved = [&] { return number_of(state.load(std::memory_order_acquire)) != seen; };
    for (int i = 0; i < kPausesBeforeYield && !moved() && !sleepy.load(std::memory_order_relaxed); ++i)
      pause_cpu();
    if (!moved()) {
      const auto until = std::chrono::steady_clock::now() + kSpin;
      while (!moved() && !sleepy.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < until)
        give_way();
    }
    for (;;) {
      const uint32_t call = calls.load(std::memory_order_acquire);
      if (moved()) break;
      calls.wait(call, std::memory_order_acquire);
    }
    if (stop.load(std::memory_order_relaxed)) return;
    // In by one exchange, so that a worker is never inside a region that has closed.
    uint64_t now = state.load(std::memory_order_acquire);
    while (!(now & kClosed) && !state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
    }
    seen = number_of(now);
    if (now & kClosed) continue;
    invoke(body, worker, width);
    running.fetch_sub(1, std::memory_order_release);
    state.fetch_sub(1, std::memory_order_release);
  }
}

void WorkerPool::Impl::run(const void* body_now, Invoke invoke_now, bool loose_now) {
  if (depth > 0 || width == 1) {
    // Nested (or alone): depth 2 and more has no one to meet at a barrier.
    struct Deeper {
      Deeper() { depth += 2; }
      ~Deeper() { depth -= 2; }
    } deeper;
    invoke_now(body_now, 0, 1);
    return;
  }
  const std::lock_guard lock(region);
  body = body_now;
  invoke = invoke_now;
  loose = loose_now;
  running.store(width - 1, std::memory_order_relaxed);
  sleepy.store(false, std::memory_order_relaxed);
  state.store(state_of(number_of(state.load(std::memory_order_relaxed)) + 1), std::memory_order_release);
  wake();
  current_pool = this;
  depth = 1;
  std::exception_ptr error;
  try {
    invoke_now(body_now, 0, width);
  } catch (...) {
    error = std::current_exception();
  }
  depth = 0;
  current_pool = nullptr;
  if (!loose_now) await([&] { return running.load(std::memory_order_acquire) == 0; });
  state.fetch_or(kClosed, std::memory_order_acq_rel);
  await([&] { return (state.load(std::memory_order_acquire) & kInside) == 0; });
  if (error) std::rethrow_exception(error);
}

void WorkerPool::Impl::barrier() {
  if (width == 1 || depth != 1 || current_pool != this) return;
  if (loose)
    fail(ErrorKind::internal, "worker pool: a barrier in a loose region waits for workers that may not come");
  const uint32_t now = phase.load(std::memory_order_relaxed);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) == width - 1) {
    arrived.store(0, std::memory_order_relaxed);
    phase.store(now + 1, std::memory_order_release);
  } else {
    await([&] { return phase.load(std::memory_order_acquire) != now; });
  }
}

WorkerPool::WorkerPool(int threads) : impl_(std::make_unique<Impl>(threads)) {}
WorkerPool::~WorkerPool() = default;

void WorkerPool::call(const void* body, void (*invoke)(const void*, int, int), bool loose) {
  impl_->run(body, invoke, loose);
}
void WorkerPool::barrier() { impl_->barrier(); }
int WorkerPool::width() const { return impl_->width; }
void WorkerPool::park() { impl_->sleepy.store(true, std::memory_order_relaxed); }

void WorkerPool::settle_caller() {
  if (settled_in == impl_.get()) return;
  settled_in = impl_.get();
  if (impl_->cpus.empty() || impl_->width == 1) return;
  std::vector<int> free = impl_->cpus;
  free.erase(free.begin() + 1, free.begin() + impl_->width);
  restrict_caller(free);
}

WorkerPool& WorkerPool::shared() {
  static WorkerPool* const pool = [] {
    shared_made.store(true);
    const int asked = shared_threads.load();
    return new WorkerPool(asked ? asked : default_threads());
  }();
  return *pool;
}

void WorkerPool::set_shared_threads(int threads) {
  if (threads < 1 || threads > kMaxThreads)
    fail(ErrorKind::invalid_request, "threads: expected 1 to {}, got {}", kMaxThreads, threads);
  if (shared_made.load() && shared().width() != threads)
    fail(ErrorKind::internal, "threads: the worker pool already runs with {}, too late for {}",
         shared().width(), threads);
  shared_threads.store(threads);
}

int WorkerPool::default_threads() {
  int cores = static_cast<int>(allowed_cpus().size());
  if (cores == 0) cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (const int quota = cgroup_cores(); quota > 0) cores = std::min(cores, quota);
  return std::min(cores >= 4 ? cores - 1 : cores, kMaxThreads);
}

}  // namespace mlxcel
