// Rows that fail, are cancelled or shut down: nobody else notices, and nothing stays behind. On the fake
// model.
#include <cstdlib>
#include <thread>

#include "engine/loop/engine_fixture.h"
#include "engine/loop/fail_step.h"

namespace mlxcel {
namespace {

using testing::FakeModel;
using testing::Outcome;
using testing::Running;

using FaultTest = testing::FakeEngineTest;

TEST_F(FaultTest, NanFailsItsRowAlone) {  // H8
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

TEST_F(FaultTest, AThrowingStepFailsItsCulpritAlone) {
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

TEST_F(FaultTest, EightFailuresInARowStopTheEngine) {
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

TEST_F(FaultTest, FailStepHook) {
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
  EXPECT_TRUE(FailStep::parse("/a:2:memory").hits("/a", 1));
  for (const char* text :
       {"", "x", ":1", "x:", "x:0", "x:-1", "x:1y", "x:memory", ":1:memory", "x:1:memory:"})
    EXPECT_THROW(FailStep::parse(text), Error) << text;
}

// Memory that one row never gets: the others wait for nothing but its refusal, and lose nothing.
TEST_F(FaultTest, ARowThatFindsNoMemoryIsRefusedAlone) {
  ::setenv("MLXCEL_FAIL_STEP", "/bad:3:memory", 1);
  auto engine = make(EngineOptions{.parallel = 3});
  ::unsetenv("MLXCEL_FAIL_STEP");
  control_->step_ms = 1;
  const auto a = prompt(40, 1), b = prompt(60, 2);
  auto first = start(*engine, request(a, 30)), second = start(*engine, request(b, 30));
  Request bad = request({1, 2}, 10);
  bad.route = "/bad";
  const Outcome failed = start(*engine, bad).wait();
  ASSERT_TRUE(failed.error);
  EXPECT_EQ(failed.error->kind(), ErrorKind::out_of_memory);
  EXPECT_EQ(failed.tokens.size(), 2u);
  EXPECT_EQ(first.wait().tokens, FakeModel::answer(a, 30));
  EXPECT_EQ(second.wait().tokens, FakeModel::answer(b, 30));
  EXPECT_FALSE(engine->failure());
  EXPECT_EQ(engine->stats().failed, 1u);
  EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
}

TEST_F(FaultTest, CancelLeavesWithinTwoSteps) {  // H5
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

TEST_F(FaultTest, AWaitingRequestCanBeCancelled) {
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

TEST_F(FaultTest, ACancelledWaitingRequestLeavesTheQueue) {
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

TEST_F(FaultTest, AThrowingSinkEndsItsRequestAlone) {
  auto engine = make();
  engine->submit(request({1}, 1000), [](Event event) {
    if (std::holds_alternative<Token>(event)) throw std::runtime_error("client gone");
  });
  EXPECT_EQ(start(*engine, request({2}, 20)).wait().tokens, FakeModel::answer({2}, 20));
  EXPECT_EQ(engine->stats().cancelled, 1u);
}

TEST_F(FaultTest, DrainLetsRunningOnesEnd) {
  auto engine = make();
  control_->step_ms = 2;
  auto running = start(*engine, request({1}, 20));
  engine->drain(20.0);
  EXPECT_EQ(running.wait().finished->reason, FinishReason::length);
  EXPECT_THROW(start(*engine, request({1}, 1)), Busy);
  EXPECT_EQ(engine->stats().running, 0);
}

TEST_F(FaultTest, DrainCancelsWhatTakesTooLong) {
  auto engine = make(EngineOptions{.parallel = 1});
  control_->step_ms = 5;
  auto running = start(*engine, request({1}, 500));
  auto waiting = start(*engine, request({1}, 500));
  engine->drain(0.02);
  EXPECT_EQ(running.wait().finished->reason, FinishReason::cancelled);
  EXPECT_EQ(waiting.wait().finished->reason, FinishReason::cancelled);
}

TEST_F(FaultTest, DestructionCancels) {
  auto engine = make();
  control_->step_ms = 5;
  auto running = start(*engine, request({1}, 500));
  engine.reset();
  EXPECT_EQ(running.wait().finished->reason, FinishReason::cancelled);
}

}  // namespace
}  // namespace mlxcel
