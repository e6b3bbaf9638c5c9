// Bounds that flags set: rows of a step, prompts that share one, what is kept of prompts; and those that
// change while the engine runs. On the fake model.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "engine/loop/engine_fixture.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;
using testing::FakeModel;
using testing::Outcome;
using testing::Running;

using BoundsTest = testing::FakeEngineTest;

TEST_F(BoundsTest, FewerRowsDecodeThanRunAndTakeTurns) {
  auto engine = make(EngineOptions{.parallel = 3, .max_batch = 2});
  control_->step_ms = 200;  // the others are there before the first step has ended
  std::vector<Running> all;
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 3; ++i) {
    prompts.push_back(prompt(6, i));
    all.push_back(start(*engine, request(prompts.back(), 30)));
  }
  control_->step_ms = 2;
  std::vector<Outcome> outcomes(3);
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(all[i].token(outcomes[i]));
  control_->largest_decoding_step = 0;  // from here on no prompt is among them
  for (size_t i = 0; i < 3; ++i) {
    while (all[i].token(outcomes[i])) {
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcomes[i].tokens, FakeModel::answer(prompts[i], 30)) << i;
    EXPECT_EQ(outcomes[i].times.size(), 30u);
    // Nobody is left standing: each has about half its answer before anyone has all of it.
    for (const Outcome& other : outcomes) EXPECT_LT(outcomes[i].times[15], other.end) << i;
  }
  EXPECT_EQ(control_->largest_decoding_step, 2);
  EXPECT_EQ(engine->stats().running, 0);
  engine = make(EngineOptions{.parallel = 3, .max_batch = 1});
  all.clear();
  for (const auto& p : prompts) all.push_back(start(*engine, request(p, 10)));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].wait().tokens, FakeModel::answer(prompts[i], 10));
  EXPECT_EQ(error_of([&] { make(EngineOptions{.parallel = 3, .max_batch = 4}); }).param(), "max-batch-size");
}

TEST_F(BoundsTest, PromptsShareAStepAsFarAsTheyMay) {
  // A long step first, so that all of them wait when the next is planned.
  const auto most = [&](const EngineOptions& options, std::vector<int> lengths) {
    auto engine = make(options);
    control_->step_ms = 200;
    Running first = start(*engine, request(prompt(4, 9), 1));
    while (control_->steps == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<Running> all;
    for (size_t i = 0; i < lengths.size(); ++i)
      all.push_back(start(*engine, request(prompt(lengths[i], static_cast<int>(i)), 1)));
    first.wait();
    control_->step_ms = 0;
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i].wait().tokens, FakeModel::answer(prompt(lengths[i], static_cast<int>(i)), 1));
    return std::pair(control_->most_rows.load(), control_->largest_step.load());
  };
  const EngineOptions base{.parallel = 8, .prompt_cache = false};
  EXPECT_EQ(most(base, {20, 20, 20, 20, 20, 20}), std::pair(4, 80));
  EngineOptions two = base;
  two.max_prefill_rows = 2;
  EXPECT_EQ(most(two, {20, 20, 20}), std::pair(2, 40));
  EngineOptions few = base;
  few.max_prefill_tokens = 50;
  EXPECT_EQ(most(few, {20, 20, 20}), std::pair(3, 50));  // the third brings what is left
  EXPECT_EQ(most(few, {200, 20}), std::pair(1, 200));    // one alone is no batch
  few.max_prefill_tokens = 0;
  few.max_prefill_rows = 8;
  EXPECT_EQ(most(few, {100, 100, 100}), std::pair(3, 300));
  few.prefill_chunk = 40;
  EXPECT_EQ(most(few, {100, 100, 100}), std::pair(3, 120));  // the chunk is one prompt's
  for (const auto& [wrong, param] :
       {std::pair(EngineOptions{.max_prefill_rows = 0}, "max-batch-prefill"),
        std::pair(EngineOptions{.max_prefill_tokens = -1}, "max-batch-prefill-tokens")})
    EXPECT_EQ(error_of([&] { make(wrong); }).param(), param);
}

TEST_F(BoundsTest, EntriesOfThePromptCache) {
  EngineOptions options;
  options.prompt_cache_bounds.entries = 3;
  auto engine = make(options);
  for (int i = 0; i < 6; ++i) start(*engine, request(prompt(64, i), 3)).wait();
  EngineStats stats = engine->stats();
  EXPECT_EQ(stats.cache_entries, 3);
  EXPECT_EQ(stats.cache_evictions, 3u);
  EXPECT_GT(stats.cache_capacity, stats.cache_bytes);
  EXPECT_EQ(stats.snapshot_entries, 0);
  EXPECT_EQ(start(*engine, request(prompt(64, 5), 1)).wait().finished->timings.cached_tokens, 63);
  EXPECT_EQ(start(*engine, request(prompt(64, 0), 1)).wait().finished->timings.cached_tokens, 0);
}

TEST_F(BoundsTest, TimeOfThePromptCache) {
  EngineOptions options;
  options.prompt_cache_bounds.ttl_s = 0.2;
  auto engine = make(options);
  start(*engine, request(prompt(64, 1), 3)).wait();
  EXPECT_EQ(start(*engine, request(prompt(64, 1), 3)).wait().finished->timings.cached_tokens, 63);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(start(*engine, request(prompt(64, 1), 3)).wait().finished->timings.cached_tokens, 0);
  EXPECT_EQ(engine->stats().cache_expired, 1u);
  EXPECT_EQ(engine->stats().cache_entries, 1);
}

TEST_F(BoundsTest, LeastLengthWholeEntriesAndPages) {
  EngineOptions options;
  options.prompt_cache_bounds.min_prefix = 70;
  auto engine = make(options);
  start(*engine, request(prompt(64, 1), 3)).wait();
  EXPECT_EQ(engine->stats().cache_entries, 0);
  EXPECT_EQ(engine->stats().cache_rejected_short, 1u);
  start(*engine, request(prompt(100, 2), 3)).wait();
  auto other = prompt(100, 2);
  other[68] = (other[68] + 1) % 89;  // 68 tokens are shared: too few
  EXPECT_EQ(start(*engine, request(other, 3)).wait().finished->timings.cached_tokens, 0);
  other = prompt(100, 2);
  other[75] = (other[75] + 1) % 89;
  EXPECT_EQ(start(*engine, request(other, 3)).wait().finished->timings.cached_tokens, 75);

  options = {};
  options.prompt_cache_bounds.whole_only = true;
  engine = make(options);
  const Outcome first = start(*engine, request(prompt(100, 2), 3)).wait();
  EXPECT_EQ(start(*engine, request(other, 3)).wait().finished->timings.cached_tokens, 0);
  auto longer = prompt(100, 2);
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  EXPECT_EQ(start(*engine, request(longer, 3)).wait().finished->timings.cached_tokens, 102);

  options = {};
  options.prompt_cache_bounds.pages = 5;
  engine = make(options);
  const size_t page = engine->stats().page_bytes;
  ASSERT_GT(page, 0u);
  EXPECT_EQ(engine->stats().cache_capacity, 5 * page);
  for (int i = 0; i < 4; ++i) start(*engine, request(prompt(64, 10 + i), 3)).wait();
  EXPECT_LE(engine->stats().cache_bytes, 5 * page);
  EXPECT_GT(engine->stats().cache_evictions, 0u);
}

TEST_F(BoundsTest, TheDiskIsClearedWhereThatIsAskedFor) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("bounds-{}", ::getpid());
  fs::remove_all(folder);
  const auto files = [&] { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); };
  EngineOptions options;
  options.prompt_cache_dir = folder;
  auto engine = make(options);
  if (!engine->stats().disk) {
    fs::remove_all(folder);
    GTEST_SKIP() << "the reference kernels keep nothing on disk";
  }
  const auto p = prompt(64, 1);
  start(*engine, request(p, 3)).wait();
  engine->clear_prompt_cache();  // of memory alone: the next prompt finds it on disk
  const auto limit = Clock::now() + std::chrono::seconds(20);
  while (files() == 0 && Clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(files(), 1);
  engine.reset();
  engine = make(options);
  EXPECT_EQ(engine->stats().disk_entries, 1);
  EXPECT_GT(engine->stats().disk_bytes, 0u);
  EXPECT_EQ(engine->stats().disk_capacity, options.prompt_cache_disk_bytes);
  EXPECT_EQ(start(*engine, request(p, 3)).wait().finished->timings.cached_tokens, 63);
  EXPECT_EQ(engine->stats().disk_hits, 1u);
  engine->clear_prompt_cache();
  EXPECT_EQ(start(*engine, request(p, 3)).wait().finished->timings.cached_tokens, 63) << "read again";
  engine->clear_prompt_cache(true);
  EXPECT_EQ(files(), 0);
  EXPECT_EQ(start(*engine, request(p, 3)).wait().finished->timings.cached_tokens, 0);
  engine.reset();
  fs::remove_all(folder);
}

TEST_F(BoundsTest, WhatChangesWhileItRuns) {
  auto engine = make(EngineOptions{.parallel = 2, .step_token_budget = 20});
  EXPECT_EQ(engine->step_token_budget(), 20u);
  engine->set_step_token_budget(7);
  EXPECT_EQ(engine->step_token_budget(), 7u);
  EXPECT_EQ(error_of([&] { engine->set_step_token_budget(1); }).param(), "step-token-budget");
  control_->step_ms = 2;
  Running decoding = start(*engine, request(prompt(4, 1), 60));
  Outcome begun;
  ASSERT_TRUE(decoding.token(begun));
  start(*engine, request(prompt(100, 2), 2)).wait();
  decoding.wait();
  EXPECT_LE(control_->largest_decoding_step, 7);
  engine->set_step_token_budget(0);
  for (int i = 0; i < 3; ++i) start(*engine, request(prompt(200, 3 + i), 2)).wait();
  EXPECT_GT(engine->step_token_budget(), 7u) << "learned from now on";
  EXPECT_EQ(error_of([&] { engine->set_language_bias({{{"klingon", 1.0f}}, false}); }).kind(),
            ErrorKind::invalid_request);

  engine->set_max_per_key(1);
  Request r = request(prompt(4, 1), 400);
  r.key = "a";
  Running one = start(*engine, r);
  Outcome first;
  ASSERT_TRUE(one.token(first));
  Running two = start(*engine, r);
  r.key = "b";
  Running other = start(*engine, r);
  Outcome passed;
  ASSERT_TRUE(other.token(passed));
  // The second of "a" waits though it came first. Figures are told behind the tokens of their step.
  const auto limit = Clock::now() + std::chrono::seconds(20);
  while (engine->stats().running != 2 && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine->stats().running, 2);
  EXPECT_EQ(engine->stats().waiting, 1);
  engine->set_max_per_key(0);
  for (Running* running : {&one, &two, &other}) EXPECT_TRUE(running->wait().finished);
}

}  // namespace
}  // namespace mlxcel
