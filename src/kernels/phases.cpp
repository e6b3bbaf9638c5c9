#include "kernels/phases.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "base/pause.h"
#include "base/worker_pool.h"

namespace mlxcel::kernels {
namespace {

constexpr int kMostShares = 256;
// A pause is 40 to 140 cycles: well past the end of a neighbour's task, well before a time slice's.
constexpr int kPausesBeforeYield = 2000;

/// One worker's share of the phase at work: the phase's number above, pieces taken below. A share still of an
/// earlier phase counts as untouched, so nobody has to reset it.
struct alignas(64) Share {
  std::atomic<uint64_t> taken{0};

  /// The next piece of `pieces`, or -1: none left, or the phase is over.
  int take(uint32_t phase, int pieces) {
    uint64_t now = taken.load(std::memory_order_relaxed);
    for (;;) {
      const auto of = static_cast<uint32_t>(now >> 32);
      if (of > phase) return -1;
      const uint32_t piece = of == phase ? static_cast<uint32_t>(now) : 0;
      if (static_cast<int>(piece) >= pieces) return -1;
      const uint64_t next = static_cast<uint64_t>(phase) << 32 | (piece + 1);
      if (taken.compare_exchange_weak(now, next, std::memory_order_relaxed)) return static_cast<int>(piece);
    }
  }
};

std::atomic<bool> share_all{false};

class Progress {
 public:
  Progress(const std::vector<Phase>& phases, Share* shares, int width)
      : phases_(phases), shares_(shares), width_(width) {}

  void work(int worker) noexcept {
    const auto count = static_cast<uint32_t>(phases_.size());
    for (uint32_t p = current_.load(std::memory_order_acquire); p < count;
         p = std::max(p + 1, current_.load(std::memory_order_acquire))) {
      const Phase& phase = phases_[p];
      const int pieces = (phase.tasks + phase.grain - 1) / phase.grain;
      int done = 0;
      for (int i = 0; i < width_; ++i) {
        const int owner = (worker + i) % width_;
        const auto [first, last] = share(pieces, owner, width_);
        for (int piece; (piece = shares_[owner].take(p + 1, last - first)) >= 0; ++done) {
          const int begin = (first + piece) * phase.grain;
          phase.work->run(phase.part, worker, begin, std::min(begin + phase.grain, phase.tasks));
        }
      }
      if (done > 0 && done_.fetch_add(done, std::memory_order_acq_rel) + done == pieces) {
        done_.store(0, std::memory_order_relaxed);
        current_.store(p + 1, std::memory_order_release);
      } else {
        await(p, worker);
      }
    }
  }

 private:
  void await(uint32_t phase, int worker) const {
    const auto over = [&] { return current_.load(std::memory_order_acquire) > phase; };
    const Phase* const next = phase + 1 < phases_.size() ? &phases_[phase + 1] : nullptr;
    bool more = next != nullptr;
    for (int i = 0; i < kPausesBeforeYield; ++i) {
      if (over()) return;
      if (more)
        more = next->work->fetch(next->part, worker, width_, i);
      else
        pause_cpu();
    }
    while (!over()) give_way();
  }

  const std::vector<Phase>& phases_;
  Share* const shares_;
  const int width_;
  alignas(64) std::atomic<uint32_t> current_{0};
  alignas(64) std::atomic<int> done_{0};
};

}  // namespace

void share_everything(bool on) { share_all.store(on); }

void run_phases(const std::vector<Phase>& phases, bool serial) {
  if (phases.empty()) return;
  auto& pool = WorkerPool::shared();
  if ((serial && !share_all.load(std::memory_order_relaxed)) || pool.width() == 1) {
    for (const Phase& phase : phases) phase.work->run(phase.part, 0, 0, phase.tasks);
    return;
  }
  const int width = std::min(pool.width(), kMostShares);
  std::vector<Share> shares(static_cast<size_t>(width));
  Progress progress(phases, shares.data(), width);
  pool.run_loose([&](int worker, int) { progress.work(worker); });
}

}  // namespace mlxcel::kernels
