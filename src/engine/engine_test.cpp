// Requests and their answers on the fake model: windows, choices, queues, threads.
#include <cmath>
#include <set>
#include <thread>

#include "engine/loop/engine_fixture.h"

namespace mlxcel {
namespace {

using testing::FakeModel;
using testing::Outcome;
using testing::Running;

using EngineTest = testing::FakeEngineTest;

TEST_F(EngineTest, AnswersGreedily) {
  auto engine = make();
  const auto p = prompt(5, 1);
  const Outcome outcome = start(*engine, request(p, 12)).wait();
  EXPECT_EQ(outcome.tokens, FakeModel::answer(p, 12));
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason, FinishReason::length);
  EXPECT_EQ(outcome.finished->timings.prompt_tokens, 5);
  EXPECT_EQ(outcome.finished->timings.generated_tokens, 12);
  EXPECT_FALSE(outcome.finished->eos);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.pages_free, stats.pages_total);
  EXPECT_EQ(stats.generated_tokens, 12u);
}

TEST_F(EngineTest, EndTokenStopsAndIsNotSent) {
  auto engine = make();
  const std::vector<int32_t> p = {3, FakeModel::kToEos};
  Outcome outcome = start(*engine, request(p, 5)).wait();
  EXPECT_TRUE(outcome.tokens.empty());
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason, FinishReason::stop);
  EXPECT_EQ(outcome.finished->eos, FakeModel::kEos);

  Request ignoring = request(p, 5);
  ignoring.ignore_eos = true;
  outcome = start(*engine, ignoring).wait();
  EXPECT_EQ(outcome.tokens.size(), 5u);
  EXPECT_EQ(outcome.finished->reason, FinishReason::length);

  Request other = request({3, 4}, 5);  // H14: any id of the list ends the answer
  const auto answer = FakeModel::answer({3, 4}, 5);
  other.eos = {FakeModel::kEos, answer[2]};
  outcome = start(*engine, other).wait();
  EXPECT_EQ(outcome.tokens, (std::vector<int32_t>{answer[0], answer[1]}));
  EXPECT_EQ(outcome.finished->eos, answer[2]);
}

TEST_F(EngineTest, ManyAtOnceEachAsAlone) {
  EngineOptions options;
  options.parallel = 5;
  options.prefill_chunk = 40;
  options.step_token_budget = 12;
  auto engine = make(options);
  std::vector<std::pair<std::vector<int32_t>, Running>> all;
  for (int i = 0; i < 40; ++i) {
    auto p = prompt(1 + (i * 37) % 150, i);
    auto running = start(*engine, request(p, 3 + i % 20));
    all.emplace_back(std::move(p), std::move(running));
  }
  for (int i = 0; i < 40; ++i) {
    auto& [p, running] = all[static_cast<size_t>(i)];
    EXPECT_EQ(running.wait().tokens, FakeModel::answer(p, 3 + i % 20)) << i;
  }
  EXPECT_LE(control_->most_rows, 5);
  EXPECT_GT(control_->most_rows, 1);
  EXPECT_LE(control_->largest_step, 4 * 40);
  EXPECT_LE(control_->largest_decoding_step, 12);
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.mixed_steps, 0u);
  EXPECT_EQ(stats.pages_free, stats.pages_total);
}

TEST_F(EngineTest, AnyChunkGivesTheSame) {
  const auto p = prompt(100, 3);
  for (int chunk : {1, 7, 32, 99, 100, 0}) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    auto engine = make(options);
    EXPECT_EQ(start(*engine, request(p, 8)).wait().tokens, FakeModel::answer(p, 8)) << chunk;
    EXPECT_EQ(control_->steps, (chunk == 0 ? 1 : (100 + chunk - 1) / chunk) + 7) << chunk;
  }
}

TEST_F(EngineTest, WindowsAreHonoured) {  // H26
  EngineOptions options;
  options.context = 64;
  auto engine = make(options);
  EXPECT_EQ(engine->context(), 64);
  const Error over = error_of([&] { start(*engine, request(prompt(65, 1), 1)); });
  EXPECT_EQ(over.kind(), ErrorKind::invalid_request);
  EXPECT_NE(std::string(over.what()).find("65"), std::string::npos);
  EXPECT_NE(std::string(over.what()).find("64"), std::string::npos);
  EXPECT_EQ(error_of([&] { start(*engine, request(prompt(64, 1), 1)); }).kind(), ErrorKind::invalid_request);
  Outcome outcome = start(*engine, request(prompt(63, 1), -1)).wait();
  EXPECT_EQ(outcome.tokens.size(), 1u);
  EXPECT_EQ(outcome.finished->reason, FinishReason::length);
  outcome = start(*engine, request(prompt(10, 1), 1000)).wait();
  EXPECT_EQ(outcome.tokens.size(), 54u);
  EXPECT_EQ(outcome.finished->reason, FinishReason::length);
  outcome = start(*engine, request(prompt(64, 1), 0)).wait();
  EXPECT_TRUE(outcome.finished);
  EXPECT_THROW(make(EngineOptions{.context = 1000}, 512), Error);
}

TEST_F(EngineTest, NothingToGenerateEvaluatesThePrompt) {  // H32
  auto engine = make();
  Request r = request(prompt(20, 2), 0);
  r.prompt_logprobs = true;
  r.sampling.logprobs = 2;
  const Outcome outcome = start(*engine, r).wait();
  EXPECT_TRUE(outcome.tokens.empty());
  EXPECT_EQ(outcome.finished->reason, FinishReason::length);
  EXPECT_EQ(outcome.scored.size(), 19u);
}

TEST_F(EngineTest, PromptLogprobsAreThoseOfTheModel) {
  const auto p = prompt(50, 4);
  std::vector<Draw> whole;
  for (int chunk : {0, 9}) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    auto engine = make(options);
    Request r = request(p, 3);
    r.prompt_logprobs = true;
    r.sampling.logprobs = 1;
    const Outcome outcome = start(*engine, r).wait();
    ASSERT_EQ(outcome.scored.size(), 49u);
    for (size_t i = 0; i < 49; ++i) {
      double sum = 0;
      for (int c = 0; c < FakeModel::kVocab; ++c)
        sum += std::exp(FakeModel::logit(p[i], static_cast<int>(i), c));
      EXPECT_EQ(outcome.scored[i].token, p[i + 1]);
      EXPECT_NEAR(outcome.scored[i].logprob,
                  FakeModel::logit(p[i], static_cast<int>(i), p[i + 1]) - std::log(sum), 1e-5);
      ASSERT_EQ(outcome.scored[i].top.size(), 1u);
      EXPECT_EQ(outcome.scored[i].top[0].token, FakeModel::successor(p[i], static_cast<int>(i)));
    }
    EXPECT_EQ(outcome.tokens, FakeModel::answer(p, 3));
  }
}

TEST_F(EngineTest, BadRequestsAreRefusedAtOnce) {
  auto engine = make();
  EXPECT_EQ(error_of([&] { start(*engine, request({}, 1)); }).param(), "prompt");
  EXPECT_EQ(error_of([&] { start(*engine, request({1, FakeModel::kVocab}, 1)); }).param(), "prompt");
  EXPECT_EQ(error_of([&] { start(*engine, request({-1}, 1)); }).param(), "prompt");
  EXPECT_EQ(error_of([&] { start(*engine, request({1}, -2)); }).param(), "max_tokens");
  Request r = request({1}, 1);
  r.sampling.logit_bias = {{FakeModel::kVocab, 1.0f}};  // H18
  EXPECT_EQ(error_of([&] { start(*engine, r); }).param(), "logit_bias");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}}}); }).kind(), ErrorKind::unsupported);
  EXPECT_EQ(engine->stats().requests, 0u);
}

TEST_F(EngineTest, OptionsAreChecked) {
  EXPECT_THROW(make(EngineOptions{.parallel = 0}), Error);
  EXPECT_THROW(make(EngineOptions{.prefill_chunk = -1}), Error);
  EXPECT_THROW(make(EngineOptions{.parallel = 8, .step_token_budget = 7}), Error);
  EngineOptions kv;
  kv.kv_cache_mode = "turbo9";
  EXPECT_EQ(error_of([&] { make(kv); }).param(), "kv-cache-mode");
  EngineOptions pooling;
  pooling.pooling = "mean";
  EXPECT_EQ(error_of([&] { make(pooling); }).kind(), ErrorKind::unsupported);
}

TEST_F(EngineTest, AnswersThatGoInCirclesStop) {
  auto engine = make();
  Request r = request({7}, 100);
  r.sampling.logit_bias = {{3, 100.0f}};
  r.loops = {.max_pattern = 4, .min_pattern = 1, .min_count = 5};
  const Outcome outcome = start(*engine, r).wait();
  EXPECT_EQ(outcome.tokens.size(), 5u);
  EXPECT_EQ(outcome.finished->reason, FinishReason::stop);
  EXPECT_FALSE(outcome.finished->eos);
  r.loops.min_count = 1;
  EXPECT_EQ(error_of([&] { start(*engine, r); }).param(), "min_count");
  r.loops = {.max_pattern = 2, .min_pattern = 3};
  EXPECT_EQ(error_of([&] { start(*engine, r); }).param(), "min_pattern_size");
}

TEST_F(EngineTest, AFullQueueIsBusy) {
  EngineOptions options;
  options.parallel = 1;
  options.max_queue = 2;
  auto engine = make(options);
  control_->step_ms = 5;
  std::vector<Running> running;
  for (int i = 0; i < 3; ++i) running.push_back(start(*engine, request({1}, 10)));
  EXPECT_THROW(start(*engine, request({1}, 10)), Busy);
  for (auto& r : running) EXPECT_EQ(r.wait().tokens.size(), 10u);
  EXPECT_EQ(start(*engine, request({1}, 1)).wait().tokens.size(), 1u);
}

TEST_F(EngineTest, ScarcePagesPutTheYoungestBack) {
  // Three rows of up to 160 tokens on pages for little more than one: 7 pages of 32 tokens.
  EngineOptions options;
  options.parallel = 3;
  options.context = 160;
  options.max_kv_tokens = 224;
  auto engine = make(options);
  std::vector<std::vector<int32_t>> prompts = {prompt(40, 1), prompt(20, 2), prompt(30, 3)};
  std::vector<Running> running;
  for (const auto& p : prompts) {
    Request r = request(p, 110);
    r.prompt_logprobs = true;
    running.push_back(start(*engine, r));
  }
  for (size_t i = 0; i < 3; ++i) {
    const Outcome outcome = running[i].wait();
    EXPECT_EQ(outcome.tokens, FakeModel::answer(prompts[i], 110)) << i;
    EXPECT_EQ(outcome.scored.size(), prompts[i].size() - 1);  // told once
  }
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.pages_free, stats.pages_total);
}

TEST_F(EngineTest, SeedsAndChoices) {  // H15
  auto engine = make(EngineOptions{.parallel = 8});
  Request r = request({1, 2, 3}, 12);
  r.sampling.temperature = 50.0f;
  r.sampling.banned = {FakeModel::kEos, FakeModel::kNan,
                       FakeModel::kThrow};  // answers cut short may be equal
  std::set<std::vector<int32_t>> seen;
  std::vector<Running> running;
  for (int i = 0; i < 20; ++i) running.push_back(start(*engine, r));
  for (auto& x : running) seen.insert(x.wait().tokens);
  EXPECT_EQ(seen.size(), 20u);

  r.sampling.seed = 7;
  const Outcome alone = start(*engine, r).wait();
  EXPECT_EQ(alone.finished->seed, 7u);
  running.clear();
  for (int i = 0; i < 20; ++i) running.push_back(start(*engine, r));
  for (auto& x : running) EXPECT_EQ(x.wait().tokens, alone.tokens);
  r.choice = 1;
  EXPECT_NE(start(*engine, r).wait().tokens, alone.tokens);
}

TEST_F(EngineTest, TwoEnginesShareTheThread) {
  auto one = make();
  const auto control = control_;
  auto two = make();
  auto a = start(*one, request({1}, 50));
  auto b = start(*two, request({2}, 50));
  EXPECT_EQ(a.wait().tokens, FakeModel::answer({1}, 50));
  EXPECT_EQ(b.wait().tokens, FakeModel::answer({2}, 50));
  one.reset();
  EXPECT_EQ(start(*two, request({3}, 5)).wait().tokens, FakeModel::answer({3}, 5));
}

TEST_F(EngineTest, SinksMaySubmit) {
  auto engine = make();
  auto events = std::make_shared<Channel<Event>>();
  engine->submit(request({1}, 1), [&](Event event) {
    if (std::holds_alternative<Finished>(event))
      engine->submit(request({2}, 1), [events](Event e) { events->push(std::move(e)); });
  });
  const auto event = events->pop_for(std::chrono::seconds(20));
  ASSERT_TRUE(event);
  EXPECT_EQ(std::get<Token>(*event).draw.token, FakeModel::answer({2}, 1)[0]);
}

TEST_F(EngineTest, ManyThreads) {
  auto engine = make(EngineOptions{.parallel = 4});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto p = prompt(1 + (t * 20 + i) % 60, t * 100 + i);
        auto running = start(*engine, request(p, 6));
        if (i % 5 == 4) {
          running.handle.cancel();
          running.wait();
          ++right;
        } else if (running.wait().tokens == FakeModel::answer(p, 6)) {
          ++right;
        }
        engine->stats();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

}  // namespace
}  // namespace mlxcel
