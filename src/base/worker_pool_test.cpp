#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace mlxcel {
namespace {

TEST(WorkerPool, RunsEveryWorkerOnce) {
  for (const int width : {1, 2, 3, 5}) {
    WorkerPool pool(width);
    EXPECT_EQ(pool.width(), width);
    std::vector<int> hits(static_cast<size_t>(width), 0);  // one writer an element
    for (int round = 0; round < 200; ++round)
      pool.run([&](int worker, int workers) {
        EXPECT_EQ(workers, width);
        ++hits[static_cast<size_t>(worker)];
      });
    for (const int count : hits) EXPECT_EQ(count, 200);
  }
}

TEST(WorkerPool, BarrierOrdersPhases) {
  WorkerPool pool(3);
  std::vector<int> value(3, 0);
  int wrong = 0;
  for (int round = 0; round < 100; ++round) {
    pool.run([&](int worker, int width) {
      value[static_cast<size_t>(worker)] = round;
      pool.barrier();
      int sum = 0;
      for (const int v : value) sum += v;
      pool.barrier();
      if (worker == width - 1 && sum != 3 * round) ++wrong;
      value[static_cast<size_t>(worker)] = -1;
    });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(WorkerPool, NestedRunIsSerialAndItsBarrierDoesNotWait) {
  WorkerPool pool(2);
  std::atomic<int> inner{0};
  pool.run([&](int, int) {
    pool.run([&](int worker, int width) {
      EXPECT_EQ(worker, 0);
      EXPECT_EQ(width, 1);
      pool.barrier();
      ++inner;
    });
    pool.barrier();  // the outer region's own
  });
  EXPECT_EQ(inner.load(), 2);
}

TEST(WorkerPool, TwoThreadsTakeTurns) {
  WorkerPool pool(2);
  int count = 0;  // safe only if regions never overlap
  const auto client = [&] {
    for (int i = 0; i < 200; ++i)
      pool.run([&](int worker, int) {
        if (worker == 0) ++count;
      });
  };
  std::thread other(client);
  client();
  other.join();
  EXPECT_EQ(count, 400);
}

TEST(WorkerPool, LooseRegionsDoEverythingOnce) {
  for (const int width : {1, 2, 4}) {
    WorkerPool pool(width);
    std::vector<std::atomic<int>> hits(97);
    for (int round = 0; round < 300; ++round) {
      pool.each(97, 1 + round % 7, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      if (round % 3 == 0) pool.run([&](int worker, int) { hits[static_cast<size_t>(worker)] += 0; });
    }
    for (const auto& count : hits) EXPECT_EQ(count.load(), 300);
  }
}

/// A region's own variables are gone when it returns: a late worker must not touch them.
TEST(WorkerPool, LooseRegionsEndBeforeTheirVariables) {
  WorkerPool pool(3);
  int64_t total = 0;
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> next{0}, sum{0};
    pool.run_loose([&](int, int) {
      for (int i; (i = next.fetch_add(1)) < 5;) sum += i;
    });
    total += sum.load();
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(4));  // parked in between
  }
  EXPECT_EQ(total, 2000 * 10);
}

TEST(WorkerPool, LooseRegionsHaveNoBarrier) {
  WorkerPool pool(2);
  EXPECT_THROW(pool.run_loose([&](int worker, int) {
    if (worker == 0) pool.barrier();
  }),
               Error);
}

TEST(WorkerPool, CallersExceptionLeavesRunAndThePoolGoesOn) {
  WorkerPool pool(2);
  EXPECT_THROW(pool.run([](int worker, int) {
    if (worker == 0) throw std::runtime_error("broken");
  }),
               std::runtime_error);
  std::atomic<int> ran{0};
  pool.run([&](int, int) { ++ran; });
  EXPECT_EQ(ran.load(), 2);
}

TEST(WorkerPool, WakesParkedWorkers) {
  WorkerPool pool(2);
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) {
    pool.park();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run([&](int, int) { ++ran; });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // past the spin: parked by itself
    pool.run([&](int, int) { ++ran; });
  }
  EXPECT_EQ(ran.load(), 12);
}

TEST(WorkerPool, SettledCallerStillWorks) {
  WorkerPool pool(2);
  int ran = 0;
  std::thread caller([&] {
    pool.settle_caller();
    pool.settle_caller();
    pool.run([&](int worker, int) {
      if (worker == 0) ++ran;
    });
  });
  caller.join();
  EXPECT_EQ(ran, 1);
}

TEST(WorkerPool, RefusesAbsurdWidths) {
  EXPECT_THROW(WorkerPool(0), Error);
  EXPECT_THROW(WorkerPool(-3), Error);
  EXPECT_THROW(WorkerPool(1 << 20), Error);
  EXPECT_THROW(WorkerPool::set_shared_threads(0), Error);
}

TEST(WorkerPool, ReadsCgroupQuota) {
  EXPECT_EQ(cores_of_cpu_max("max 100000"), 0);
  EXPECT_EQ(cores_of_cpu_max("200000 100000"), 2);
  EXPECT_EQ(cores_of_cpu_max("150000 100000"), 2);
  EXPECT_EQ(cores_of_cpu_max("1000 100000"), 1);
  EXPECT_EQ(cores_of_cpu_max(""), 0);
  EXPECT_EQ(cores_of_cpu_max("-1 100000"), 0);
  EXPECT_EQ(cores_of_cpu_max("100000 0"), 0);
  EXPECT_GE(WorkerPool::default_threads(), 1);
}

TEST(WorkerPool, SharesCoverEverything) {
  for (const int count : {0, 1, 7, 64, 2147483647}) {
    int next = 0;
    for (int worker = 0; worker < 5; ++worker) {
      const auto [begin, end] = share(count, worker, 5);
      EXPECT_EQ(begin, next);
      EXPECT_LE(begin, end);
      next = end;
    }
    EXPECT_EQ(next, count);
  }
}

}  // namespace
}  // namespace mlxcel
