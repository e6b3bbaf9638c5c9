#include "kernels/phases.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/worker_pool.h"

namespace mlxcel::kernels {
namespace {

/// Each part adds one to a part of its own of every counter, and sees what the part before it left.
class Chain final : public PhaseWork {
 public:
  Chain(int parts, int tasks) : tasks_(tasks), hits_(static_cast<size_t>(parts * tasks)) {}

  void run(int part, int worker, int begin, int end) override {
    if (worker < 0 || worker >= WorkerPool::shared().width()) wrong_ = true;
    for (int i = begin; i < end; ++i) {
      // Plain ints on purpose: the order between phases must hold without any help of theirs.
      if (part > 0)
        for (int k = 0; k < tasks_; ++k) wrong_ = wrong_ || hit(part - 1, k) != 1;
      ++hit(part, i);
    }
  }
  int& hit(int part, int task) { return hits_[static_cast<size_t>(part * tasks_ + task)]; }
  bool wrong() const { return wrong_; }
  bool complete() const {
    for (const int h : hits_)
      if (h != 1) return false;
    return true;
  }

 private:
  int tasks_;
  std::vector<int> hits_;
  std::atomic<bool> wrong_{false};
};

std::vector<Phase> phases_of(Chain& chain, int parts, int tasks, int grain) {
  std::vector<Phase> phases;
  for (int p = 0; p < parts; ++p) phases.push_back({&chain, p, tasks, grain});
  return phases;
}

TEST(Phases, EveryTaskRunsOnceAfterAllOfThePhaseBefore) {
  for (const int tasks : {1, 2, 3, 7, 40})
    for (const int grain : {1, 2, 5, 100})
      for (int round = 0; round < 20; ++round) {
        Chain chain(9, tasks);
        run_phases(phases_of(chain, 9, tasks, grain));
        ASSERT_TRUE(chain.complete()) << tasks << " tasks by " << grain;
        ASSERT_FALSE(chain.wrong()) << tasks << " tasks by " << grain;
      }
}

TEST(Phases, NothingToDoAndWorkTooSmallToShare) {
  run_phases({});
  Chain chain(3, 5);
  run_phases(phases_of(chain, 3, 5, 1), true);
  EXPECT_TRUE(chain.complete());
  EXPECT_FALSE(chain.wrong());
}

TEST(Phases, InsideARegionTheyRunOnTheirWorkerAlone) {
  std::atomic<int> complete{0};
  WorkerPool::shared().run([&](int, int) {
    Chain chain(4, 6);
    run_phases(phases_of(chain, 4, 6, 1));
    if (chain.complete() && !chain.wrong()) ++complete;
  });
  EXPECT_EQ(complete.load(), WorkerPool::shared().width());
}

TEST(Phases, ManyProgramsFromSeveralThreads) {
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        Chain chain(5, 11);
        run_phases(phases_of(chain, 5, 11, 2));
        if (!chain.complete() || chain.wrong()) ++bad;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad.load(), 0);
}

}  // namespace
}  // namespace mlxcel::kernels
