// Products of few rows read several blocks side by side, and workers that wait ask for what comes next: every
// number of blocks gives the bits of the products that go block by block.
#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/matrix.h"
#include "kernels/phases.h"
#include "kernels/testdata.h"

namespace mlxcel::kernels {
namespace {

Weight coded(int rows, int bits, uint64_t seed) {
  const auto planes = mx::quantize(normal({rows, 96}, seed), 32, bits);
  return {"w",
          {rows, 96},
          evaluated(planes[0]),
          evaluated(mx::astype(planes[1], mx::float16)),
          evaluated(mx::astype(planes[2], mx::float16)),
          QuantFormat{QuantMode::affine, bits, 32}};
}

Weight dense(int rows, uint64_t seed) {
  return {"w",          {rows, 96},   evaluated(mx::astype(normal({rows, 96}, seed), mx::bfloat16)),
          std::nullopt, std::nullopt, std::nullopt};
}

struct Shared {
  Shared() { share_everything(true); }
  ~Shared() {
    share_everything(false);
    set_precision(Precision::high);
  }
};

/// Each row of `many` as `one` gives it alone.
void expect_rows(const array& many, const array& x, const std::function<array(const array&)>& one, int rows) {
  const array whole = evaluated(many);
  const int width = whole.shape(1);
  for (int row = 0; row < rows; ++row) {
    const array alone = evaluated(one(mx::slice(x, {row, 0}, {row + 1, x.shape(1)})));
    ASSERT_EQ(std::memcmp(alone.data<float>(), whole.data<float>() + static_cast<ptrdiff_t>(row) * width,
                          static_cast<size_t>(width) * sizeof(float)),
              0)
        << "row " << row << " of " << width << " columns";
  }
}

TEST(Streams, EveryNumberOfBlocksGivesTheSameBits) {
  const Shared shared;
  const array x = normal({13, 96}, 1);
  for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
    set_precision(precision);
    for (const int rows : {1, 7, 16, 17, 31, 33, 48, 64, 65, 80, 96, 100, 112, 129, 144, 161, 208, 257, 400})
      for (const int bits : {4, 8, 16}) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(bits) + " bits");
        const Weight w = bits == 16 ? dense(rows, 2) : coded(rows, bits, 3);
        const Matrix m = Matrix::concatenated(std::span(&w, 1));
        expect_rows(matmul(x, m), x, [&](const array& row) { return matmul(row, m); }, 3);
        if (bits == 16) continue;
        const Matrix pair = Matrix::gated(w, coded(rows, bits, 4));
        expect_rows(
            gated_matmul(x, pair, Activation::silu), x,
            [&](const array& row) { return gated_matmul(row, pair, Activation::silu); }, 2);
      }
  }
}

/// Fetches are for the next part only and stop when told that there is no more.
class Fetched final : public PhaseWork {
 public:
  void run(int part, int, int begin, int end) override {
    for (int i = begin; i < end; ++i)
      for (int turn = 0; turn < (i == 0 ? 20000 : 1); ++turn) sum_.fetch_add(part, std::memory_order_relaxed);
  }
  bool fetch(int part, int worker, int width, int step) override {
    if (part < 1 || part > 3 || width != WorkerPool::shared().width() || worker < 0 || worker >= width ||
        step < 0 || step > 2)
      wrong_ = true;
    asked_ = true;
    return step < 2;
  }
  bool wrong() const { return wrong_; }
  bool asked() const { return asked_; }

 private:
  std::atomic<long long> sum_{0};
  std::atomic<bool> wrong_{false}, asked_{false};
};

TEST(Streams, WorkersThatWaitAskForWhatTheyReadNext) {
  if (WorkerPool::shared().width() < 2) GTEST_SKIP() << "one worker never waits";
  Fetched work;
  for (int round = 0; round < 200 && !work.asked(); ++round)
    run_phases({{&work, 0, 4, 1}, {&work, 1, 4, 1}, {&work, 2, 4, 1}, {&work, 3, 4, 1}});
  EXPECT_TRUE(work.asked());
  EXPECT_FALSE(work.wrong());
}

}  // namespace
}  // namespace mlxcel::kernels
