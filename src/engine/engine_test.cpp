#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <numeric>
#include <random>
#include <set>

#include "base/channel.h"
#include "base/clock.h"
#include "engine/loop/fail_step.h"
#include "engine/loop/fake_model.h"
#include "engine/loop/pace.h"

namespace mlxcel {
namespace {

using testing::FakeControl;
using testing::FakeModel;

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<Draw> draws, scored;
  std::optional<Finished> finished;
  std::optional<Error> error;
};

/// A request under way, its events collected by whoever waits.
struct Running {
  std::shared_ptr<Channel<Event>> events = std::make_shared<Channel<Event>>();
  Handle handle;

  /// Waits for one token; false when the end came first.
  bool token(Outcome& outcome) {
    while (auto event = events->pop_for(std::chrono::seconds(20))) {
      if (take(outcome, std::move(*event))) return false;
      return true;
    }
    ADD_FAILURE() << "no event in 20 s";
    return false;
  }
  Outcome wait() {
    Outcome outcome;
    while (token(outcome)) {
    }
    return outcome;
  }

 private:
  static bool take(Outcome& outcome, Event event) {
    if (auto* token = std::get_if<Token>(&event)) {
      outcome.tokens.push_back(token->draw.token);
      outcome.draws.push_back(token->draw);
      return false;
    }
    if (auto* scored = std::get_if<Scored>(&event)) {
      outcome.scored.insert(outcome.scored.end(), scored->tokens.begin(), scored->tokens.end());
      return false;
    }
    if (auto* finished = std::get_if<Finished>(&event)) outcome.finished = *finished;
    if (auto* failed = std::get_if<Failed>(&event)) outcome.error.emplace(failed->error);
    return true;
  }
};

class EngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> make(EngineOptions options = {}, int window = 512, bool encoder = false) {
    control_ = std::make_shared<FakeControl>();
    Checkpoint checkpoint;
    checkpoint.eos_ids = {FakeModel::kEos};
    auto engine = Engine::with_model([&] { return std::make_unique<FakeModel>(control_, encoder, window); },
                                     nullptr, nullptr, checkpoint, options);
    control_->steps = 0;
    return engine;
  }
  static Running start(Engine& engine, Request request) {
    Running running;
    running.handle =
        engine.submit(std::move(request), [events = running.events](Event e) { events->push(std::move(e)); });
    return running;
  }
  static Request request(std::vector<int32_t> prompt, int max_tokens) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    return r;
  }
  static std::vector<int32_t> prompt(int length, int seed) {
    std::mt19937 rng(static_cast<unsigned>(seed));
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    for (auto& t : tokens) t = static_cast<int32_t>(rng() % 89);
    return tokens;
  }
  template <class F>
  static Error error_of(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing thrown";
    return {ErrorKind::internal, ""};
  }

  std::shared_ptr<FakeControl> control_;
};

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
  EXPECT_LE(control_->largest_step, 40);
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

TEST_F(EngineTest, NanFailsItsRowAlone) {  // H8
  auto engine = make(EngineOptions{.parallel = 10});
  control_->step_ms = 2;
  std::vector<Running> good;
  for (int i = 0; i < 9; ++i) good.push_back(start(*engine, request(prompt(4, i), 10)));
  const Outcome bad = start(*engine, request({1, FakeModel::kNan}, 10)).wait();
  ASSERT_TRUE(bad.error);
  EXPECT_EQ(bad.error->kind(), ErrorKind::internal);
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(good[static_cast<size_t>(i)].wait().tokens, FakeModel::answer(prompt(4, i), 10));
  EXPECT_EQ(engine->stats().failed, 1u);
  EXPECT_FALSE(engine->failure());
}

TEST_F(EngineTest, AThrowingStepFailsItsCulpritAlone) {
  auto engine = make(EngineOptions{.parallel = 10});
  control_->step_ms = 2;
  std::vector<Running> good;
  for (int i = 0; i < 9; ++i) good.push_back(start(*engine, request(prompt(4, i), 10)));
  const Outcome bad = start(*engine, request({1, FakeModel::kThrow, 2}, 10)).wait();
  ASSERT_TRUE(bad.error);
  EXPECT_NE(std::string(bad.error->what()).find("spoils"), std::string::npos);
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(good[static_cast<size_t>(i)].wait().tokens, FakeModel::answer(prompt(4, i), 10));
  EXPECT_FALSE(engine->failure());
  const int steps = control_->steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(control_->steps, steps);  // no retry loop
}

TEST_F(EngineTest, EightFailuresInARowStopTheEngine) {
  auto engine = make();
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(start(*engine, request({FakeModel::kThrow}, 1)).wait().error);
  EXPECT_FALSE(engine->failure());
  EXPECT_TRUE(start(*engine, request({1}, 1)).wait().finished);  // one success forgives
  control_->broken = true;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(start(*engine, request({1}, 1)).wait().error);
  // The last failure is published right after its event.
  for (int i = 0; i < 1000 && !engine->failure(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(engine->failure());
  EXPECT_NE(engine->failure()->find("device lost"), std::string::npos);
  EXPECT_EQ(error_of([&] { start(*engine, request({1}, 1)); }).kind(), ErrorKind::internal);
}

TEST_F(EngineTest, FailStepHook) {
  ::setenv("MLXCEL_FAIL_STEP", "/bad:3", 1);
  auto engine = make();
  ::unsetenv("MLXCEL_FAIL_STEP");
  Request bad = request({1, 2}, 10);
  bad.route = "/bad";
  Request good = request({1, 2}, 10);
  good.route = "/good";
  auto first = start(*engine, bad);
  auto second = start(*engine, good);
  const Outcome failed = first.wait();
  ASSERT_TRUE(failed.error);
  EXPECT_EQ(failed.tokens.size(), 2u);
  EXPECT_EQ(second.wait().tokens, FakeModel::answer({1, 2}, 10));

  EXPECT_TRUE(FailStep::parse("*:1").hits("any", 0));
  EXPECT_FALSE(FailStep::parse("/a:b:2").hits("/a:b", 0));
  EXPECT_TRUE(FailStep::parse("/a:b:2").hits("/a:b", 1));
  for (const char* text : {"", "x", ":1", "x:", "x:0", "x:-1", "x:1y"})
    EXPECT_THROW(FailStep::parse(text), Error) << text;
}

TEST_F(EngineTest, CancelLeavesWithinTwoSteps) {  // H5
  auto engine = make();
  control_->step_ms = 5;
  auto running = start(*engine, request({1}, 500));
  Outcome outcome;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(running.token(outcome));
  running.handle.cancel();
  const int steps = control_->steps;
  while (running.token(outcome)) {
  }
  EXPECT_LE(control_->steps, steps + 2);
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->reason, FinishReason::cancelled);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.cancelled, 1u);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.pages_free, stats.pages_total);
}

TEST_F(EngineTest, AWaitingRequestCanBeCancelled) {
  auto engine = make(EngineOptions{.parallel = 1});
  control_->step_ms = 5;
  auto first = start(*engine, request({1}, 30));
  auto second = start(*engine, request({2}, 30));
  second.handle.cancel();
  const Outcome outcome = second.wait();
  EXPECT_EQ(outcome.finished->reason, FinishReason::cancelled);
  EXPECT_TRUE(outcome.tokens.empty());
  EXPECT_EQ(first.wait().tokens.size(), 30u);
}

TEST_F(EngineTest, ACancelledWaitingRequestLeavesTheQueue) {
  auto engine = make(EngineOptions{.parallel = 1});
  control_->step_ms = 20;
  auto first = start(*engine, request({1}, 500));
  Outcome outcome;
  ASSERT_TRUE(first.token(outcome));
  std::vector<Running> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(start(*engine, request({2}, 30)));
  ASSERT_TRUE(first.token(outcome));
  first.handle.cancel();
  for (auto& r : waiting) r.handle.cancel();
  for (auto& r : waiting) EXPECT_EQ(r.wait().finished->reason, FinishReason::cancelled);
  while (first.token(outcome)) {
  }
  EXPECT_EQ(engine->stats().waiting, 0);
  EXPECT_EQ(engine->stats().running, 0);
  EXPECT_EQ(engine->stats().cancelled, 4u);
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

TEST_F(EngineTest, AThrowingSinkEndsItsRequestAlone) {
  auto engine = make();
  engine->submit(request({1}, 1000), [](Event event) {
    if (std::holds_alternative<Token>(event)) throw std::runtime_error("client gone");
  });
  EXPECT_EQ(start(*engine, request({2}, 20)).wait().tokens, FakeModel::answer({2}, 20));
  EXPECT_EQ(engine->stats().cancelled, 1u);
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

TEST_F(EngineTest, DrainLetsRunningOnesEnd) {
  auto engine = make();
  control_->step_ms = 2;
  auto running = start(*engine, request({1}, 20));
  engine->drain(20.0);
  EXPECT_EQ(running.wait().finished->reason, FinishReason::length);
  EXPECT_THROW(start(*engine, request({1}, 1)), Busy);
  EXPECT_EQ(engine->stats().running, 0);
}

TEST_F(EngineTest, DrainCancelsWhatTakesTooLong) {
  auto engine = make(EngineOptions{.parallel = 1});
  control_->step_ms = 5;
  auto running = start(*engine, request({1}, 500));
  auto waiting = start(*engine, request({1}, 500));
  engine->drain(0.02);
  EXPECT_EQ(running.wait().finished->reason, FinishReason::cancelled);
  EXPECT_EQ(waiting.wait().finished->reason, FinishReason::cancelled);
}

TEST_F(EngineTest, DestructionCancels) {
  auto engine = make();
  control_->step_ms = 5;
  auto running = start(*engine, request({1}, 500));
  engine.reset();
  EXPECT_EQ(running.wait().finished->reason, FinishReason::cancelled);
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

TEST_F(EngineTest, Embeds) {
  EngineOptions options;
  options.prefill_chunk = 16;
  auto engine = make(options, 64, true);
  EXPECT_EQ(engine->max_input(), 64);
  EmbedRequest r;
  r.normalize = false;
  r.inputs = {{10, 20, 30}, {5}, prompt(40, 1), {7, 8}};
  Embeddings e = engine->embed(r);
  ASSERT_EQ(e.vectors.size(), 4u);
  EXPECT_EQ(e.vectors[0], (std::vector<float>{20.0f, 1.0f, 3.0f, 1.0f}));
  EXPECT_EQ(e.vectors[1], (std::vector<float>{5.0f, 0.0f, 1.0f, 1.0f}));
  EXPECT_EQ(e.vectors[3], (std::vector<float>{7.5f, 0.5f, 2.0f, 1.0f}));
  EXPECT_EQ(e.prompt_tokens, 46);
  r.pooling = "cls";
  EXPECT_EQ(engine->embed(r).vectors[0][0], 10.0f);
  r.pooling = "last";
  EXPECT_EQ(engine->embed(r).vectors[0][0], 30.0f);
  r.pooling = "max";
  EXPECT_EQ(engine->embed(r).vectors[0], (std::vector<float>{30.0f, 2.0f, 3.0f, 1.0f}));
  r.pooling = "";
  r.normalize = true;
  r.dimensions = 2;
  e = engine->embed(r);
  ASSERT_EQ(e.vectors[0].size(), 2u);
  EXPECT_NEAR(e.vectors[0][0], 20.0 / std::sqrt(401.0), 1e-6);
  EXPECT_GT(engine->stats().embedded_inputs, 0u);
}

TEST_F(EngineTest, EmbeddingErrors) {
  auto engine = make({}, 8, true);
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {}}); }).param(), "input");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{}}}); }).param(), "input");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}}, .pooling = "median"}); }).param(), "pooling");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}}, .dimensions = 5}); }).param(), "dimensions");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{FakeModel::kVocab}}}); }).param(), "input");
  const Error longer = error_of([&] { engine->embed({.inputs = {{1}, prompt(9, 1)}}); });
  EXPECT_NE(std::string(longer.what()).find("input[1] has 9 tokens"), std::string::npos) << longer.what();
  const Embeddings cut = engine->embed({.inputs = {{1}, prompt(9, 1)}, .truncate = true});
  EXPECT_EQ(cut.truncated, 1);
  EXPECT_EQ(cut.prompt_tokens, 9);
  EXPECT_EQ(error_of([&] { start(*engine, request({1}, 1)); }).kind(), ErrorKind::unsupported);
}

TEST_F(EngineTest, OneBadEmbeddingInputFailsItsJobAlone) {
  auto engine = make({}, 64, true);
  std::vector<std::future<bool>> good;
  control_->step_ms = 3;
  for (int i = 0; i < 6; ++i)
    good.push_back(std::async(std::launch::async, [&, i] {
      return engine->embed({.inputs = {{i + 1}}, .normalize = false}).vectors[0][0] ==
             static_cast<float>(i + 1);
    }));
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}, {FakeModel::kThrow}}}); }).kind(),
            ErrorKind::internal);
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{FakeModel::kNan}, {1}}}); }).kind(),
            ErrorKind::internal);
  for (auto& g : good) EXPECT_TRUE(g.get());
  EXPECT_FALSE(engine->failure());
}

TEST(Pace, IsSteeredByMixedSteps) {
  Pace pace(0, 100.0);
  EXPECT_EQ(pace.budget(), 16);
  pace.observe(1, 1.0, false);  // a lone decode says nothing of prompts
  EXPECT_EQ(pace.budget(), 16);
  pace.observe(512, 512.0, false);  // prompts alone tell a start, half of what they would make of the gap
  EXPECT_EQ(pace.budget(), 40);
  // A step costs 20 ms and 0.5 ms a token: 120 tokens take the 80 ms that are aimed at.
  for (int i = 0; i < 40; ++i) pace.observe(pace.budget(), 20.0 + 0.5 * pace.budget(), true);
  EXPECT_NEAR(pace.budget(), 120, 3);
  pace.observe(20, 5.0, true);  // far from full: no reason for more
  EXPECT_NEAR(pace.budget(), 120, 3);
  pace.observe(pace.budget(), 160.0, true);
  EXPECT_NEAR(pace.budget(), 60, 3);
  pace.observe(pace.budget(), 1e6, true);
  EXPECT_NEAR(pace.budget(), 30, 3);
  for (int i = 0; i < 9; ++i) pace.observe(pace.budget(), 1e6, true);
  EXPECT_EQ(pace.budget(), 16);
  for (int i = 0; i < 60; ++i) pace.observe(pace.budget(), 0.01, true);
  EXPECT_EQ(pace.budget(), 4096);
  Pace fixed(77, 100.0);
  fixed.observe(512, 1e6, true);
  EXPECT_EQ(fixed.budget(), 77);
}

}  // namespace
}  // namespace mlxcel
