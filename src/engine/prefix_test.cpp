// Kept prefixes, choices of one prompt, lanes, deadlines, drafts: who evaluates what, on the fake model.
#include <future>
#include <mutex>

#include "engine/loop/engine_fixture.h"
#include "engine/loop/speculation.h"

namespace mlxcel {
namespace {

using testing::FakeModel;
using testing::Outcome;
using testing::Running;

using PrefixTest = testing::FakeEngineTest;

TEST_F(PrefixTest, H4TheSamePromptIsNotEvaluatedTwice) {
  auto engine = make();
  const auto p = prompt(100, 1);
  const auto first = start(*engine, request(p, 8)).wait();
  EXPECT_EQ(first.finished->timings.cached_tokens, 0);
  const uint64_t evaluated = engine->stats().prompt_tokens;
  const auto second = start(*engine, request(p, 8)).wait();
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.finished->timings.cached_tokens, 99);  // at least one token is evaluated
  EXPECT_EQ(engine->stats().prompt_tokens, evaluated + 1);
  EXPECT_EQ(engine->stats().cache_hits, 1u);
  EXPECT_EQ(engine->stats().cache_misses, 1u);
  EXPECT_EQ(engine->stats().cache_tokens_reused, 99u);
}

TEST_F(PrefixTest, TurnsGoOnFromTheAnswer) {
  auto engine = make();
  auto p = prompt(70, 2);
  const auto first = start(*engine, request(p, 10)).wait();
  p.insert(p.end(), first.tokens.begin(), first.tokens.end());
  for (int t : prompt(20, 3)) p.push_back(t);
  const auto second = start(*engine, request(p, 5)).wait();
  EXPECT_EQ(second.tokens, FakeModel::answer(p, 5));
  EXPECT_EQ(second.finished->timings.cached_tokens, 79);  // the last token drawn was never evaluated
}

TEST_F(PrefixTest, ScopesAndWishesKeepApart) {
  auto engine = make();
  const auto p = prompt(64, 4);
  Request r = request(p, 3);
  r.cache_scope = "alice";
  start(*engine, r).wait();
  r.cache_scope = "bob";
  EXPECT_EQ(start(*engine, r).wait().finished->timings.cached_tokens, 0);
  r.cache_scope = "alice";
  EXPECT_EQ(start(*engine, r).wait().finished->timings.cached_tokens, 63);
  r.cache_prompt = false;
  EXPECT_EQ(start(*engine, r).wait().finished->timings.cached_tokens, 0);
  r.cache_prompt = true;
  engine->clear_prompt_cache();
  EXPECT_EQ(engine->stats().cache_entries, 0);
  EXPECT_EQ(engine->stats().cache_bytes, 0u);
  EXPECT_EQ(start(*engine, r).wait().finished->timings.cached_tokens, 0);
}

TEST_F(PrefixTest, WhatIsCancelledOrFailsIsNotKept) {
  auto engine = make();
  control_->step_ms = 3;
  Request r = request(prompt(40, 5), 400);
  auto running = start(*engine, r);
  running.handle.cancel();
  running.wait();
  EXPECT_EQ(engine->stats().cache_entries, 0);
}

TEST_F(PrefixTest, EvictionMakesRoomAndNothingLeaks) {
  EngineOptions options;
  options.context = 128;
  options.parallel = 2;
  options.max_kv_tokens = 256;  // eight pages
  auto engine = make(options);
  for (int i = 0; i < 30; ++i) {
    const auto p = prompt(40 + i, i);
    EXPECT_EQ(start(*engine, request(p, 20)).wait().tokens, FakeModel::answer(p, 20));
  }
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.cache_evictions, 10u);
  EXPECT_GT(stats.cache_entries, 0);
  EXPECT_EQ(stats.pages_free, stats.pages_total);
}

TEST_F(PrefixTest, BudgetsHold) {
  EngineOptions options;
  auto engine = make(options);
  start(*engine, request(prompt(60, 0), 2)).wait();
  options.prompt_cache_bytes = 2 * engine->stats().cache_bytes;  // two such entries
  ASSERT_GT(options.prompt_cache_bytes, 0u);
  engine = make(options);
  for (int i = 0; i < 5; ++i) {
    start(*engine, request(prompt(60, i), 2)).wait();
    EXPECT_LE(engine->stats().cache_bytes, options.prompt_cache_bytes);
  }
  EXPECT_EQ(engine->stats().cache_entries, 2);
  start(*engine, request(prompt(300, 9), 2)).wait();  // larger than the store
  EXPECT_LE(engine->stats().cache_bytes, options.prompt_cache_bytes);
}

TEST_F(PrefixTest, ChoicesShareOnePrefill) {
  EngineOptions options;
  options.parallel = 2;
  options.prefill_chunk = 30;
  auto engine = make(options);
  Request r = request(prompt(90, 6), 6);
  r.group = 42;
  r.cache_prompt = false;
  control_->step_ms = 3;
  std::vector<Running> choices;
  for (int i = 0; i < 5; ++i) {
    r.choice = i;
    choices.push_back(start(*engine, r));
  }
  for (auto& c : choices) EXPECT_EQ(c.wait().tokens, FakeModel::answer(r.prompt, 6));
  EXPECT_LE(engine->stats().prompt_tokens, 94u);  // a choice that comes late evaluates the last token again
  EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
}

TEST_F(PrefixTest, AChoiceGoesOnWhenItsLeaderLeaves) {
  auto engine = make(EngineOptions{.parallel = 3, .prefill_chunk = 10});
  control_->step_ms = 2;
  Request r = request(prompt(200, 7), 4);
  r.group = 1;
  auto leader = start(*engine, r), other = start(*engine, r);
  leader.handle.cancel();
  EXPECT_EQ(other.wait().tokens, FakeModel::answer(r.prompt, 4));
  leader.wait();
}

TEST_F(PrefixTest, LanesComeFirstAndKeysTakeTurns) {
  auto engine = make(EngineOptions{.parallel = 1});
  control_->step_ms = 2;
  auto busy = start(*engine, request({1}, 20));
  std::vector<std::string> order;
  std::mutex mutex;
  std::vector<std::promise<void>> done(6);
  const auto submit = [&](size_t i, const char* key, Priority priority) {
    Request r = request({static_cast<int32_t>(i + 2)}, 1);
    r.key = key;
    r.priority = priority;
    engine->submit(r, [&, i, name = fmt::format("{}{}", key, i)](Event event) {
      if (!std::holds_alternative<Finished>(event)) return;
      const std::lock_guard lock(mutex);
      order.push_back(name);
      done[i].set_value();
    });
  };
  submit(0, "low", Priority::low);
  submit(1, "a", Priority::normal);
  submit(2, "a", Priority::normal);
  submit(3, "a", Priority::normal);
  submit(4, "b", Priority::normal);
  submit(5, "hi", Priority::high);
  busy.wait();
  for (auto& d : done) d.get_future().wait();
  EXPECT_EQ(order, (std::vector<std::string>{"hi5", "a1", "b4", "a2", "a3", "low0"}));
}

TEST_F(PrefixTest, AKeyWithManyRunningLetsOthersPass) {
  auto engine = make(EngineOptions{.parallel = 3, .max_per_key = 1});
  control_->step_ms = 2;
  std::vector<Running> all;
  for (int i = 0; i < 4; ++i) {
    Request r = request({i}, 10);
    r.key = "a";
    all.push_back(start(*engine, r));
  }
  for (auto& r : all) EXPECT_EQ(r.wait().tokens.size(), 10u);
  EXPECT_EQ(control_->most_rows, 1);
}

TEST_F(PrefixTest, DeadlinesPass) {
  auto engine = make(EngineOptions{.parallel = 1});
  control_->step_ms = 5;
  Request r = request({1}, 400);
  r.deadline = Clock::now() + std::chrono::milliseconds(40);
  auto running = start(*engine, r), waiting = start(*engine, r);
  for (auto* each : {&running, &waiting}) {
    const Outcome outcome = each->wait();
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->kind(), ErrorKind::cancelled);
  }
  EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
}

TEST_F(PrefixTest, DraftsChangeNothing) {
  EngineOptions options;
  options.prompt_lookup = true;
  options.draft_tokens = 4;
  options.draft_adaptive = false;
  auto engine = make(options);
  control_->steps = 0;  // of the start-up check
  // A biased answer repeats one token: every draft of it is right.
  Request r = request({5, 6, 7}, 40);
  r.sampling.logit_bias = {{9, 100.0f}};
  const auto right = start(*engine, r).wait();
  EXPECT_EQ(right.tokens, std::vector<int32_t>(40, 9));
  EXPECT_GT(right.finished->timings.accepted, 20);
  EXPECT_LT(control_->steps, 20);
  // A prompt full of repetitions whose continuation is another: every draft is wrong.
  std::vector<int32_t> p;
  for (int i = 0; i < 20; ++i) p.insert(p.end(), {1, 2, 3});
  for (float temperature : {0.0f, 1.0f}) {
    Request wrong = request(p, 60);
    wrong.sampling.temperature = temperature;
    wrong.sampling.seed = 3;
    const auto with = start(*engine, wrong).wait();
    auto plain = make();
    EXPECT_EQ(with.tokens, start(*plain, wrong).wait().tokens);
    engine = make(options);
  }
}

TEST(Speculation, LooksUpTheLatestPlaceThatEndsMostLikeTheText) {
  const std::vector<TokenId> text = {1, 2, 3, 4, 9, 1, 2, 3, 5, 6, 1, 2, 3};
  EXPECT_EQ(looked_up(text, 2), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(looked_up(text, 9), (std::vector<TokenId>{5, 6, 1, 2, 3, 5, 6, 1, 2}));
  EXPECT_EQ(looked_up(std::vector<TokenId>{7, 1, 2, 8, 1, 2}, 3),
            (std::vector<TokenId>{8, 1, 2}));  // two tokens will do
  // What stood before decides between places that end alike.
  EXPECT_EQ(looked_up(std::vector<TokenId>{6, 1, 2, 3, 7, 5, 1, 2, 3, 8, 6, 1, 2, 3}, 1),
            std::vector<TokenId>{7});
  EXPECT_TRUE(looked_up(std::vector<TokenId>{1, 2, 3, 4}, 3).empty());
  EXPECT_TRUE(looked_up(text, 0).empty());
  EXPECT_EQ(looked_up(std::vector<TokenId>{4, 4, 4, 4}, 3), (std::vector<TokenId>{4, 4, 4}));
}

TEST(Speculation, WidthFollowsWhatIsAcceptedAndWhatItCosts) {
  DraftWidth good, bad, dear;
  for (int i = 0; i < 20; ++i) good.observe(7, 7), bad.observe(2, 0);
  EXPECT_EQ(good.next(0.05, 7), 7);
  EXPECT_EQ(good.next(0.05, 3), 3);
  EXPECT_EQ(bad.next(0.2, 7), 0);
  EXPECT_EQ(dear.next(1.0, 7), 0);  // every token costs a whole step
  int tries = 0;
  for (int i = 0; i < 100; ++i) tries += bad.next(0.2, 7) > 0 ? 1 : 0;
  EXPECT_GT(tries, 0);  // it tries again
}

TEST(Speculation, StepCostIsTheSlope) {
  StepCost cost;
  for (int i = 0; i < 50; ++i)
    for (int tokens : {1, 2, 4, 8}) cost.observe(tokens, 5.0 + 0.5 * tokens);
  EXPECT_NEAR(cost.share(1), 0.5 / 5.5, 0.01);
  EXPECT_NEAR(cost.share(10), 0.5 / 10.0, 0.01);
}

}  // namespace
}  // namespace mlxcel
