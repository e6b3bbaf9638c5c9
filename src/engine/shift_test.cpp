// Full windows: where the context shifts, its oldest tokens go and the answer runs on; elsewhere it ends. On
// the fake model, whose logits depend on places.
#include "engine/loop/engine_fixture.h"

namespace mlxcel {
namespace {

using testing::FakeModel;
using testing::Outcome;

using ShiftTest = testing::FakeEngineTest;

/// The answer by the formula, with a window that forgets.
std::vector<int32_t> shifted(std::vector<int32_t> tokens, int count, size_t window, size_t keep,
                             size_t discard) {
  std::vector<int32_t> out;
  while (static_cast<int>(out.size()) < count) {
    if (tokens.size() >= window && !out.empty()) {
      const size_t gone = discard > 0 ? discard : (tokens.size() - keep) / 2;
      const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(keep);
      tokens.erase(from, from + static_cast<std::ptrdiff_t>(gone));
    }
    out.push_back(FakeModel::successor(tokens.back(), static_cast<int>(tokens.size()) - 1));
    tokens.push_back(out.back());
  }
  return out;
}

TEST_F(ShiftTest, TheOldestTokensGoAndTheAnswerRunsOn) {
  for (const bool cache : {true, false})
    for (const auto& [keep, discard] : {std::pair{0, 0}, std::pair{10, 0}, std::pair{-1, 0}, std::pair{5, 7},
                                        std::pair{0, 1}, std::pair{1000, 0}}) {
      EngineOptions options{.context = 64, .context_shift = true, .prompt_cache = cache};
      auto engine = make(options);
      Request r = request(prompt(20, 1), 300);
      r.keep_tokens = keep;
      r.discard_tokens = discard;
      const Outcome outcome = start(*engine, r).wait();
      const size_t kept = keep < 0 ? 20 : std::min<size_t>(static_cast<size_t>(keep), 60);
      EXPECT_EQ(outcome.tokens, shifted(r.prompt, 300, 64, kept, static_cast<size_t>(discard)))
          << keep << " and " << discard;
      ASSERT_TRUE(outcome.finished);
      EXPECT_EQ(outcome.finished->reason, FinishReason::length);
      EXPECT_TRUE(outcome.finished->truncated);
      EXPECT_EQ(outcome.finished->timings.generated_tokens, 300);
      const EngineStats stats = engine->stats();
      EXPECT_GT(stats.shifts, 0u);
      EXPECT_EQ(stats.pages_free, stats.pages_total);
    }
}

TEST_F(ShiftTest, NeighboursAndDraftsDoNotNotice) {
  EngineOptions options{.context = 64, .context_shift = true, .parallel = 3};
  options.prompt_lookup = true;
  options.draft_adaptive = false;
  auto engine = make(options);
  std::vector<testing::Running> running;
  for (int i = 0; i < 6; ++i) running.push_back(start(*engine, request(prompt(10 + 9 * i, i), 150)));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(running[static_cast<size_t>(i)].wait().tokens, shifted(prompt(10 + 9 * i, i), 150, 64, 0, 0))
        << i;
  // A prompt as long as the window has an answer too; a longer one is refused as ever.
  EXPECT_EQ(start(*engine, request(prompt(64, 9), 1)).wait().tokens.size(), 1u);
  EXPECT_EQ(error_of([&] { start(*engine, request(prompt(65, 9), 1)); }).param(), "prompt");
}

// After a shift the window may still be full: that is no reason for another before a token has come.
TEST_F(ShiftTest, ARowThatWaitsForItsTurnForgetsOnce) {
  auto engine = make(EngineOptions{.context = 64, .context_shift = true, .parallel = 3, .max_batch = 1});
  std::vector<testing::Running> running;
  for (int i = 0; i < 3; ++i) {
    Request r = request(prompt(64, i), 20);
    r.discard_tokens = 1;
    running.push_back(start(*engine, r));
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(running[static_cast<size_t>(i)].wait().tokens, shifted(prompt(64, i), 20, 64, 0, 1)) << i;
}

TEST_F(ShiftTest, DrawsDoNotDependOnWhatWasForgotten) {
  // The same seed in a window that never fills and in one that does: equal up to the first shift at least.
  Request r = request(prompt(20, 2), 60);
  r.sampling.temperature = 2.0f;
  r.sampling.seed = 5;
  r.ignore_eos = true;
  r.sampling.banned = {FakeModel::kNan, FakeModel::kThrow};
  const auto whole = start(*make(), r).wait().tokens;
  const auto cut = start(*make(EngineOptions{.context = 64, .context_shift = true}), r).wait().tokens;
  ASSERT_EQ(whole.size(), cut.size());
  EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + 44, cut.begin()));
}

TEST_F(ShiftTest, WithoutItAFullWindowEndsTheAnswer) {
  auto engine = make(EngineOptions{.context = 64});
  Outcome outcome = start(*engine, request(prompt(20, 1), -1)).wait();
  EXPECT_EQ(outcome.tokens.size(), 44u);
  EXPECT_TRUE(outcome.finished->truncated);
  outcome = start(*engine, request(prompt(20, 1), 43)).wait();
  EXPECT_FALSE(outcome.finished->truncated);
  EXPECT_EQ(engine->stats().shifts, 0u);
  Request bad = request({1}, 1);
  bad.keep_tokens = -2;
  EXPECT_EQ(error_of([&] { start(*engine, bad); }).param(), "n_keep");
  bad.keep_tokens = 0;
  bad.discard_tokens = -1;
  EXPECT_EQ(error_of([&] { start(*engine, bad); }).param(), "n_discard");
}

TEST_F(ShiftTest, KeysAndValuesAreBounded) {
  EXPECT_EQ(make(EngineOptions{.max_kv_size = 100})->context(), 100);
  EXPECT_EQ(make(EngineOptions{.context = 64, .max_kv_size = 100})->context(), 64);
  EXPECT_EQ(make(EngineOptions{.max_kv_size = 4096})->context(), 512);
  EXPECT_EQ(error_of([&] { make(EngineOptions{.max_kv_size = -1}); }).param(), "max-kv-size");
}

}  // namespace
}  // namespace mlxcel
