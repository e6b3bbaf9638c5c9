// What the engine counts: steps by size, gaps between tokens, drafts by place, what the prompt cache kept and
// refused; and slots by their numbers. On the fake model.
#include <chrono>
#include <numeric>
#include <thread>

#include "engine/loop/engine_fixture.h"
#include "engine/loop/slots.h"

namespace mlxcel {
namespace {

using testing::FakeModel;
using testing::Outcome;
using testing::Running;

using FiguresTest = testing::FakeEngineTest;

TEST(StepTokens, AreCountedByPowersOfTwo) {
  StepTokens found;
  for (const uint64_t tokens : {1, 2, 3, 4, 5, 4096, 4097}) found.observe(tokens);
  EXPECT_EQ(found.steps[0], 1u);
  EXPECT_EQ(found.steps[1], 1u);
  EXPECT_EQ(found.steps[2], 2u);
  EXPECT_EQ(found.steps[3], 1u);
  EXPECT_EQ(found.steps[12], 1u);
  EXPECT_EQ(found.steps[13], 1u);
  EXPECT_EQ(found.tokens, 15u + 4096 + 4097);
}

TEST(DraftPlaces, AreCountedApart) {
  DraftPlaces places;
  places.test(0, true);
  places.test(1, false);
  for (size_t place = 0; place < DraftPlaces::kMost + 8; ++place)
    places.test(place, true);  // the last: apart no more
  EXPECT_EQ(places.tested[0], 2u);
  EXPECT_EQ(places.accepted[0], 2u);
  EXPECT_EQ(places.tested[1], 2u);
  EXPECT_EQ(places.accepted[1], 1u);
  EXPECT_EQ(places.all_tested(), 2u + DraftPlaces::kMost);
}

TEST_F(FiguresTest, StepsAndGaps) {
  EngineOptions options{.parallel = 2, .prefill_chunk = 32, .max_token_gap_ms = 70, .warmup = false};
  auto engine = make(options);
  EXPECT_EQ(engine->max_token_gap_ms(), 70);
  EXPECT_EQ(engine->stats().max_token_gap_ms, 70);
  start(*engine, request(prompt(64, 1), 5)).wait();  // 32, 32, then four of one token
  // The last event leaves inside its step, which is counted when it ends.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (engine->stats().steps < 6 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.step_tokens.steps[5], 2u);
  EXPECT_EQ(stats.step_tokens.steps[0], 4u);
  EXPECT_EQ(stats.step_tokens.tokens, 68u);
  EXPECT_EQ(std::accumulate(stats.step_tokens.steps.begin(), stats.step_tokens.steps.end(), uint64_t{0}),
            stats.steps);
  EXPECT_EQ(stats.prefill_steps, 2u);
  control_->step_ms = 15;
  start(*engine, request({1}, 3)).wait();
  stats = engine->stats();
  EXPECT_GE(stats.longest_gap_ms, 15.0);
  EXPECT_LT(stats.longest_gap_ms, 15000.0);
}

TEST_F(FiguresTest, DraftsByPlace) {
  EngineOptions options{.prompt_lookup = true, .draft_tokens = 4, .draft_adaptive = false};
  auto engine = make(options);
  Request r = request({5, 6, 7}, 40);
  r.sampling.logit_bias = {{9, 100.0f}};  // one token for ever: every draft is right
  const Outcome outcome = start(*engine, r).wait();
  const Timings& t = outcome.finished->timings;
  EXPECT_GT(t.draft_places.accepted[3], 0u);
  EXPECT_EQ(t.draft_places.all_tested(), static_cast<uint64_t>(t.accepted));
  EXPECT_EQ(engine->stats().draft_places.tested, t.draft_places.tested);
}

TEST_F(FiguresTest, WhatTheCacheKeptAndRefused) {
  EngineOptions options;
  auto engine = make(options);
  start(*engine, request(prompt(8, 1), 4)).wait();  // under a page
  EXPECT_EQ(engine->stats().cache_rejected_short, 1u);
  const Outcome first = start(*engine, request(prompt(70, 2), 4)).wait();
  auto longer = prompt(70, 2);
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  start(*engine, request(longer, 40)).wait();  // goes on from there: the shorter entry is needed no more
  EngineStats stats = engine->stats();
  EXPECT_GT(stats.cache_superseded, 0u);
  EXPECT_EQ(stats.cache_evictions, 0u);
  EXPECT_EQ(stats.snapshot_hits + stats.snapshot_misses, 0u);  // any of its rows can be cut
  options.prompt_cache_bytes = 1;
  engine = make(options);
  start(*engine, request(prompt(100, 3), 4)).wait();
  EXPECT_GT(engine->stats().cache_rejected_large, 0u);
  EXPECT_EQ(engine->stats().cache_entries, 0);
}

TEST(SlotsTest, TheLowestThatIsFreeOrTheOneThatIsWanted) {
  Slots slots(3);
  EXPECT_EQ(slots.take(-1), 0);
  EXPECT_EQ(slots.take(2), 2);
  EXPECT_EQ(slots.take(2), -1);
  EXPECT_EQ(slots.take(-1), 1);
  EXPECT_EQ(slots.take(-1), -1);
  slots.give_back(1, "scope", {1, 2});
  EXPECT_EQ(slots.at(1).tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(slots.take(-1), 1);
  EXPECT_TRUE(slots.at(1).tokens.empty());
  slots.give_back(7);  // not there
  EXPECT_FALSE(slots.known(3));
  EXPECT_FALSE(slots.known(-1));
}

TEST_F(FiguresTest, ARequestWaitsForItsSlot) {
  auto engine = make(EngineOptions{.parallel = 3});
  control_->step_ms = 3;
  Request r = request({1}, 30);
  r.slot = 1;
  auto first = start(*engine, r);
  Outcome begun;
  ASSERT_TRUE(first.token(begun));
  auto second = start(*engine, r);
  auto other = start(*engine, request({2}, 5));
  EXPECT_EQ(other.wait().finished->timings.slot, 0);  // passes the one that waits
  EXPECT_THROW(engine->erase_slot(1), Busy);
  const Outcome one = first.wait(), two = second.wait();
  EXPECT_EQ(one.finished->timings.slot, 1);
  EXPECT_EQ(two.finished->timings.slot, 1);
  EXPECT_LE(one.end, two.times.front());
  r.slot = 3;
  EXPECT_EQ(error_of([&] { start(*engine, r); }).param(), "id_slot");
  EXPECT_EQ(error_of([&] { engine->erase_slot(3); }).kind(), ErrorKind::not_found);
  // A slot whose row is cancelled or fails is free again.
  r.slot = 2;
  auto cancelled = start(*engine, r);
  ASSERT_TRUE(cancelled.token(begun));
  cancelled.handle.cancel();
  cancelled.wait();
  Request bad = request({FakeModel::kThrow}, 1);
  bad.slot = 2;
  EXPECT_TRUE(start(*engine, bad).wait().error);
  EXPECT_EQ(start(*engine, r).wait().finished->timings.slot, 2);
}

TEST_F(FiguresTest, ProgressIsToldWhereItIsAskedFor) {
  auto engine = make(EngineOptions{.prefill_chunk = 40});
  Request r = request(prompt(100, 4), 3);
  EXPECT_TRUE(start(*engine, r).wait().progress.empty());
  engine->clear_prompt_cache();
  r.progress = true;
  const Outcome outcome = start(*engine, r).wait();
  std::vector<int> seen;
  for (const Progress& p : outcome.progress) seen.push_back(p.evaluated);
  EXPECT_EQ(seen, (std::vector<int>{0, 40, 80, 100}));
}

}  // namespace
}  // namespace mlxcel
