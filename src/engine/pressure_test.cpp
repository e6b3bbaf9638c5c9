// What the loop does when there is too little of something: slots, pages, memory, time between tokens. On the
// fake model.
#include <algorithm>
#include <thread>

#include "base/memory.h"
#include "engine/loop/engine_fixture.h"

namespace mlxcel {
namespace {

using testing::FakeModel;
using testing::Outcome;
using testing::Running;

using PressureTest = testing::FakeEngineTest;

TEST_F(PressureTest, AHigherLaneTakesTheSlotWhereThatIsAllowed) {
  for (const bool allowed : {true, false}) {
    auto engine = make(EngineOptions{.parallel = 1, .preemption = allowed});
    control_->step_ms = 2;
    const auto p = prompt(70, 1);
    auto low = start(*engine, request(p, 60, Priority::low));
    low.wait(5);
    auto same = start(*engine, request({4}, 3, Priority::low));
    auto high = start(*engine, request({3}, 5, Priority::high));
    const Outcome first = high.wait();
    EXPECT_EQ(first.tokens, FakeModel::answer({3}, 5));
    const Outcome rest = low.wait();
    auto all = FakeModel::answer(p, 60);
    all.erase(all.begin(), all.begin() + 5);
    EXPECT_EQ(rest.tokens, all);
    EXPECT_EQ(first.end < rest.end, allowed);
    EXPECT_EQ(same.wait().tokens, FakeModel::answer({4}, 3));
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.preemptions, allowed ? 1u : 0u);  // a row of its own lane took nothing from it
    // It was parked, not forgotten: its 70 tokens were evaluated once, and what it had said beside them.
    EXPECT_LT(stats.prompt_tokens, 70u + 1 + 1 + 34);
    EXPECT_EQ(stats.pages_free, stats.pages_total);
  }
}

TEST_F(PressureTest, AKeyFillsItsShareOfTheQueueOnly) {
  EngineOptions options{.parallel = 2, .max_queue = 6};
  options.keys = 2;
  auto engine = make(options);
  control_->step_ms = 5;
  std::vector<Running> all;
  const auto submit = [&](const char* key) {
    Request r = request({1}, 30);
    r.key = key;
    all.push_back(start(*engine, r));
  };
  for (int i = 0; i < 5; ++i) submit("a");  // two run, three wait
  EXPECT_THROW(submit("a"), KeyBusy);
  for (int i = 0; i < 3; ++i) submit("b");
  EXPECT_THROW(submit("b"), Busy);  // now the queue is full for everybody
  all[4].handle.cancel();
  all[4].wait();
  // Its place is free a moment after its last event.
  const auto soon = [&](const char* key) {
    for (int i = 0; i < 1000; ++i) {
      try {
        return submit(key);
      } catch (const Busy&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    FAIL() << "still busy";
  };
  soon("a");
  for (size_t i = 0; i < all.size(); ++i)
    if (i != 4) {
      EXPECT_EQ(all[i].wait().tokens.size(), 30u);
    }
  for (int i = 0; i < 5; ++i) soon("a");
  for (size_t i = 9; i < all.size(); ++i) all[i].wait();
}

TEST_F(PressureTest, AShareOfThePagesStaysFreeWhileRowsDecode) {
  for (const double share : {0.0, 0.5}) {
    EngineOptions options{.context = 128, .parallel = 2};
    options.max_kv_tokens = 8 * 32;
    options.kv_watermark = share;
    options.prompt_cache = false;
    auto engine = make(options);
    control_->step_ms = 2;
    auto a = start(*engine, request(prompt(40, 1), 20)), b = start(*engine, request(prompt(40, 2), 20));
    EXPECT_EQ(a.wait().tokens, FakeModel::answer(prompt(40, 1), 20));
    EXPECT_EQ(b.wait().tokens, FakeModel::answer(prompt(40, 2), 20));
    EXPECT_EQ(control_->most_rows, share == 0.0 ? 2 : 1);
  }
  EngineOptions bad;
  bad.kv_watermark = 0.6;
  EXPECT_THROW(make(bad), Error);
}

// Memory that a step does not get makes the next one smaller; nothing is lost and nobody is to blame.
TEST_F(PressureTest, AStepThatFindsNoMemoryIsCutShort) {
  auto engine = make(EngineOptions{.parallel = 4});
  control_->most_tokens = 40;
  const auto p = prompt(300, 3);
  EXPECT_EQ(start(*engine, request(p, 10)).wait().tokens, FakeModel::answer(p, 10));
  // Rows that decode cannot be cut: the youngest wait until the others are through.
  control_->most_tokens = 2;
  control_->step_ms = 1;
  std::vector<Running> rows;
  for (int i = 0; i < 4; ++i) rows.push_back(start(*engine, request({i + 1}, 40)));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(rows[static_cast<size_t>(i)].wait().tokens, FakeModel::answer({i + 1}, 40));
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.failed, 0u);
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.pages_free, stats.pages_total);
}

TEST_F(PressureTest, WhereEvenOneTokenFindsNoneTheRequestIsRefused) {
  auto engine = make();
  control_->most_tokens = 0;
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome = start(*engine, request(prompt(100, i), 4)).wait();
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->kind(), ErrorKind::out_of_memory);
  }
  EXPECT_FALSE(engine->failure());
  control_->most_tokens = 1000;
  EXPECT_EQ(start(*engine, request({1}, 5)).wait().tokens, FakeModel::answer({1}, 5));
}

TEST_F(PressureTest, WhatCannotFitIsRefusedBeforeItIsTried) {
  EngineOptions options;
  options.memory_limit = process_memory().resident / 2;
  auto engine = make(options);
  const Outcome outcome = start(*engine, request(prompt(300, 1), 4)).wait();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->kind(), ErrorKind::out_of_memory);
  EXPECT_NE(std::string(outcome.error->what()).find("of memory are left"), std::string::npos);
  EXPECT_EQ(control_->steps, 0);
  options.memory_limit = process_memory().resident + (size_t{1} << 30);
  engine = make(options);
  EXPECT_EQ(start(*engine, request({2}, 3)).wait().tokens, FakeModel::answer({2}, 3));
}

// Steps of 1 ms and 0.05 ms a token, a gap of 20 ms: 8000 prompt tokens must not hold others up for longer,
// and must get most of the time all the same.
TEST_F(PressureTest, ALongPromptHoldsNobodyUp) {
  EngineOptions options{.parallel = 3, .max_token_gap_ms = 20};
  options.prompt_cache = false;
  auto engine = make(options, 9000);
  control_->step_ms = 1;
  control_->token_us = 50;
  auto a = start(*engine, request({1}, 400)), b = start(*engine, request({2}, 400));
  a.wait(3);
  auto prefill = start(*engine, request(prompt(8000, 1), 2));
  const Outcome whole = prefill.wait();
  EXPECT_EQ(whole.tokens, FakeModel::answer(prompt(8000, 1), 2));
  a.handle.cancel();
  b.handle.cancel();
  // By the formula, so that a busy machine cannot fail it: no step was worth more than the gap.
  EXPECT_LE(1.0 + 0.05 * control_->largest_decoding_step, 20.0);
  // 16 ms are aimed at, 300 tokens; the way up from the first guess costs some.
  EXPECT_GE(control_->largest_decoding_step, 100);
  const Outcome seen = b.wait();
  std::vector<double> gaps;
  for (size_t i = 1; i < seen.times.size(); ++i)
    gaps.push_back(milliseconds_between(seen.times[i - 1], seen.times[i]));
  ASSERT_GT(gaps.size(), 10u);
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LT(gaps[gaps.size() * 3 / 4], 40.0);
}

TEST_F(PressureTest, StepsBetweenChunksAreGranted) {
  for (const int interval : {1, 4}) {
    EngineOptions options{
        .parallel = 2, .prefill_chunk = 8, .step_token_budget = 9, .prefill_interval = interval};
    options.prompt_cache = false;
    auto engine = make(options);
    control_->step_ms = 1;
    auto row = start(*engine, request({1}, 400));
    row.wait(2);
    auto prefill = start(*engine, request(prompt(80, 1), 1));
    EXPECT_EQ(prefill.wait().tokens, FakeModel::answer(prompt(80, 1), 1));
    row.handle.cancel();
    const size_t between = row.wait().tokens.size();  // at least one a step
    EXPECT_GE(between + 3, static_cast<size_t>(10 * interval));
    const EngineStats stats = engine->stats();
    EXPECT_GE(stats.mixed_steps, 10u);
    EXPECT_LE(stats.mixed_steps, 11u);
  }
}

}  // namespace
}  // namespace mlxcel
