// Drafts by a model: what they save, and that they change nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/channel.h"
#include "engine/engine.h"
#include "engine/loop/drafter.h"
#include "engine/loop/fake_model.h"
#include "engine/loop/speculation.h"
#include "engine/loop/verify_check.h"

namespace mlxcel {
namespace {

using testing::FakeControl;
using testing::FakeModel;

/// Right only every third time; its steps may fail.
class PoorModel final : public Model {
 public:
  explicit PoorModel(std::shared_ptr<FakeControl> control) : own_(std::move(control)) {}
  const ModelInfo& info() const override { return own_.info(); }
  const StateLayout& layout() const override { return own_.layout(); }
  array logits(Step& step) override {
    if (step.positions().shape(0) > 0 && step.rows()[0].position % 3 == 0) return own_.logits(step);
    const array right = own_.logits(step);
    return mx::roll(right, 1, 1);
  }
  array hidden(Step& step) override { return own_.hidden(step); }

 private:
  FakeModel own_;
};

/// Whose block differs from its single steps.
class InexactModel final : public Model {
 public:
  explicit InexactModel(float off) : own_(std::make_shared<FakeControl>()), off_(off) {}
  const ModelInfo& info() const override { return own_.info(); }
  const StateLayout& layout() const override { return own_.layout(); }
  array logits(Step& step) override {
    const array right = own_.logits(step);
    if (step.wanted().size() < 2) return right;
    std::vector<float> bump(FakeModel::kVocab, 0.0f);
    bump[3] = off_;
    return mx::add(right, array(bump.data(), {1, FakeModel::kVocab}, mx::float32));
  }
  array hidden(Step& step) override { return own_.hidden(step); }

 private:
  FakeModel own_;
  float off_;
};

/// Sure of nothing.
class VagueModel final : public Model {
 public:
  VagueModel() : own_(std::make_shared<FakeControl>()) {}
  const ModelInfo& info() const override { return own_.info(); }
  const StateLayout& layout() const override { return own_.layout(); }
  array logits(Step& step) override {
    std::vector<float> values;
    for (const int token : step.wanted())
      for (int c = 0; c < FakeModel::kVocab; ++c)
        values.push_back(
            static_cast<float>((c * 13 + step.token_ids()[static_cast<size_t>(token)] * 7) % 29) / 6.0f);
    return array(values.begin(), {static_cast<int>(step.wanted().size()), FakeModel::kVocab}, mx::float32);
  }
  array hidden(Step& step) override { return own_.hidden(step); }

 private:
  FakeModel own_;
};

struct Outcome {
  std::vector<int32_t> tokens;
  std::optional<Finished> finished;
  std::string error;
};

class SpeculationTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> make(std::function<std::unique_ptr<Model>()> drafter, EngineOptions options = {}) {
    options.make_drafter = std::move(drafter);
    Checkpoint checkpoint;
    checkpoint.eos_ids = {FakeModel::kEos};
    auto engine = Engine::with_model([&] { return std::make_unique<FakeModel>(target_); }, nullptr, nullptr,
                                     checkpoint, options);
    target_->steps = 0;
    drafts_->steps = 0;
    return engine;
  }
  std::function<std::unique_ptr<Model>()> same() {
    return [this] { return std::make_unique<FakeModel>(drafts_); };
  }
  std::function<std::unique_ptr<Model>()> poor() {
    return [this] { return std::make_unique<PoorModel>(drafts_); };
  }
  static std::shared_ptr<Channel<Event>> start(Engine& engine, Request request) {
    auto events = std::make_shared<Channel<Event>>();
    engine.submit(std::move(request), [events](Event e) { events->push(std::move(e)); });
    return events;
  }
  static Outcome wait(Channel<Event>& events) {
    Outcome outcome;
    while (auto event = events.pop_for(std::chrono::seconds(20))) {
      if (auto* token = std::get_if<Token>(&*event)) outcome.tokens.push_back(token->draw.token);
      if (auto* finished = std::get_if<Finished>(&*event)) {
        outcome.finished = *finished;
        return outcome;
      }
      if (auto* failed = std::get_if<Failed>(&*event)) {
        outcome.error = failed->error.what();
        return outcome;
      }
    }
    outcome.error = "no event in 20 s";
    return outcome;
  }
  /// The last answer's end comes before what is concluded from it.
  static std::string verdict(Engine& engine) {
    for (int i = 0; i < 200 && engine.draft_policy().verdict.empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return engine.draft_policy().verdict;
  }
  static Outcome run(Engine& engine, Request request) { return wait(*start(engine, std::move(request))); }
  static Request request(int length, int seed, int max_tokens, float temperature = 0.0f) {
    Request r;
    std::mt19937 rng(static_cast<unsigned>(seed));
    for (int i = 0; i < length; ++i) r.prompt.push_back(static_cast<int32_t>(rng() % 89));
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    r.sampling.temperature = temperature;
    r.sampling.seed = static_cast<uint32_t>(seed);
    return r;
  }

  std::shared_ptr<FakeControl> target_ = std::make_shared<FakeControl>(),
                               drafts_ = std::make_shared<FakeControl>();
};

// MLXCEL_SPECULATIVE_STOCHASTIC_ACCEPT: of what drafter and target agree on nothing is refused, though each
// token is a matter of chance.
TEST_F(SpeculationTest, DrawnDraftsStandByTheirOdds) {
  for (const bool by_odds : {false, true}) {
    EngineOptions options;
    options.draft_tokens = 4;
    options.draft_adaptive = false;
    options.draft_by_odds = by_odds;
    options.make_drafter = [] { return std::make_unique<VagueModel>(); };
    const auto engine = Engine::with_model([] { return std::make_unique<VagueModel>(); }, nullptr, nullptr,
                                           Checkpoint{}, options);
    Request r = request(7, 1, 300, 1.0f);
    const Outcome first = run(*engine, r), again = run(*engine, r);
    ASSERT_EQ(first.error, "");
    EXPECT_EQ(first.tokens, again.tokens) << "the seed decides";
    EXPECT_EQ(first.tokens.size(), 300u);
    const Timings& t = first.finished->timings;
    ASSERT_GT(t.drafted, 100);
    const double stood = static_cast<double>(t.accepted) / t.drafted;
    if (by_odds) {
      EXPECT_GT(stood, 0.9);
    } else {
      EXPECT_LT(stood, 0.4);
    }
    r.sampling.temperature = 0.0f;
    const Outcome greedy = run(*engine, r);
    EXPECT_EQ(greedy.finished->timings.accepted, greedy.finished->timings.drafted);
  }
}

TEST_F(SpeculationTest, ADrafterEqualToTheTargetIsAlwaysRight) {  // H30
  EngineOptions options;
  options.draft_tokens = 5;
  options.draft_adaptive = false;
  auto engine = make(same(), options);
  EXPECT_EQ(engine->draft_kind(), "draft");
  EXPECT_NE(engine->speculation_label().find("exact"), std::string::npos);
  const Request r = request(7, 1, 60);
  const Outcome outcome = run(*engine, r);
  EXPECT_EQ(outcome.tokens, FakeModel::answer(r.prompt, 60));
  const Timings& t = outcome.finished->timings;
  EXPECT_GT(t.drafted, 40);
  EXPECT_EQ(t.accepted, t.drafted);
  EXPECT_LE(target_->steps, 12);  // one for the prompt, then six tokens a step
  EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
}

TEST_F(SpeculationTest, WhatAPoorDrafterProposesChangesNothing) {
  for (const bool adaptive : {false, true})
    for (const float temperature : {0.0f, 0.8f}) {
      EngineOptions options;
      options.draft_tokens = 4;
      options.draft_adaptive = adaptive;
      auto engine = make(poor(), options);
      auto plain = make(nullptr);
      std::vector<std::shared_ptr<Channel<Event>>> running;
      for (int i = 0; i < 4; ++i) running.push_back(start(*engine, request(5 + 9 * i, i, 50, temperature)));
      int drafted = 0;
      for (int i = 0; i < 4; ++i) {
        const Outcome with = wait(*running[static_cast<size_t>(i)]);
        EXPECT_EQ(with.error, "");
        EXPECT_EQ(with.tokens, run(*plain, request(5 + 9 * i, i, 50, temperature)).tokens);
        drafted += with.finished->timings.drafted;
        EXPECT_LT(with.finished->timings.accepted, with.finished->timings.drafted);
      }
      EXPECT_GT(drafted, 0);
    }
}

TEST_F(SpeculationTest, DraftsMayBeLong) {
  EngineOptions options;
  options.draft_tokens = 64;
  options.draft_adaptive = false;
  options.context = 300;
  options.step_token_budget = 400;
  for (const bool good : {true, false}) {
    auto engine = make(good ? same() : poor(), options);
    const Request r = request(7, 3, 200);
    const Outcome outcome = run(*engine, r);
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.tokens, FakeModel::answer(r.prompt, 200));
    if (!good) continue;
    EXPECT_EQ(outcome.finished->timings.accepted, outcome.finished->timings.drafted);
    EXPECT_LE(target_->steps, 6);  // 65 tokens a step
    EXPECT_GT(engine->stats().draft_places.accepted[60], 0u);
  }
}

TEST_F(SpeculationTest, WhetherDraftsPayIsMeasuredAndSettled) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("mlxcel_speculation_{}", ::getpid());
  std::filesystem::remove_all(folder);
  EngineOptions options;
  options.draft_policy = true;
  options.draft_policy_dir = folder;
  options.draft_tokens = 2;
  options.draft_adaptive = false;
  options.context = 512;
  {
    auto engine = make(poor(), options);
    drafts_->step_ms = 3;  // every token of a draft costs that much
    target_->step_ms = 1;
    EXPECT_EQ(engine->draft_policy().state, "profiling");
    for (int i = 0; i < 4; ++i) {
      const Request r = request(7, i, 200);
      const Outcome outcome = run(*engine, r);
      EXPECT_EQ(outcome.tokens, FakeModel::answer(r.prompt, 200));
      EXPECT_GT(outcome.finished->timings.drafted, 0);
    }
    EXPECT_EQ(verdict(*engine), "disable");
    EXPECT_EQ(engine->draft_policy().reason, "measured");
    EXPECT_EQ(run(*engine, request(7, 9, 100)).finished->timings.drafted, 0);
  }
  auto again = make(poor(), options);
  EXPECT_EQ(again->draft_policy().reason, "kept");
  EXPECT_FALSE(again->draft_policy().enabled);
  EXPECT_NE(again->speculation_label().find("off"), std::string::npos) << again->speculation_label();
  EXPECT_EQ(run(*again, request(7, 9, 100)).finished->timings.drafted, 0);
  std::filesystem::remove_all(folder);
  drafts_->step_ms = target_->step_ms = 0;
  // A good drafter that costs nothing beside the target stays.
  auto good = make(same(), options);
  target_->step_ms = 2;
  for (int i = 0; i < 4; ++i) run(*good, request(7, i, 200));
  EXPECT_EQ(verdict(*good), "enable");
  EXPECT_GT(run(*good, request(7, 9, 100)).finished->timings.drafted, 0);
  target_->step_ms = 0;
  std::filesystem::remove_all(folder);
  EXPECT_EQ(make(nullptr)->draft_policy().reason, "no_mtp_dispatch");
}

TEST(DraftWidthTest, LookedUpDraftsGrowWithTrustAndRestAfterMisses) {
  DraftWidth graded;
  EXPECT_EQ(graded.next_looked_up(false, 7), 2);
  graded.observe_looked_up(2, 2, false);
  EXPECT_EQ(graded.next_looked_up(false, 7), 7);
  graded.observe_looked_up(7, 1, false);
  EXPECT_EQ(graded.next_looked_up(false, 7), 2);
  for (int i = 0; i < DraftWidth::kMisses; ++i) {
    EXPECT_EQ(graded.next_looked_up(false, 7), 2);
    graded.observe_looked_up(2, 0, false);
  }
  for (int i = 0; i < DraftWidth::kPause; ++i) EXPECT_EQ(graded.next_looked_up(false, 7), 0);
  EXPECT_EQ(graded.next_looked_up(false, 7), 2);

  DraftWidth gated;
  EXPECT_EQ(gated.next_looked_up(true, 7), 7);
  gated.observe_looked_up(7, 3, true);
  EXPECT_EQ(gated.next_looked_up(true, 7), 7);
  gated.observe_looked_up(7, 0, true);
  for (int i = 0; i < DraftWidth::kPause; ++i) EXPECT_EQ(gated.next_looked_up(true, 7), 0);
  EXPECT_EQ(gated.next_looked_up(true, 7), 7);
}

TEST(DraftWidthTest, ACopiedTextIsDraftedFurtherAndFurther) {
  DraftWidth width;
  for (const int expected : {2, 7, 15, 31, 31}) {
    EXPECT_EQ(width.next_looked_up(false, 64), expected);
    width.observe_looked_up(expected, expected, false);
  }
  EXPECT_EQ(width.next_looked_up(false, 10), 10);
  width.observe_looked_up(10, 5, false);
  EXPECT_EQ(width.next_looked_up(false, 64), 7) << "partly right: a long one, no longer";
  width.observe_looked_up(7, 0, false);
  EXPECT_EQ(width.next_looked_up(false, 64), 2);

  DraftWidth gated;
  for (const int expected : {7, 7, 15, 31}) {
    EXPECT_EQ(gated.next_looked_up(true, 64), expected);
    gated.observe_looked_up(expected, expected, true);
  }
}

TEST_F(SpeculationTest, BothPoliciesOfPromptLookupChangeNothing) {
  for (const bool gated : {false, true}) {
    EngineOptions options;
    options.prompt_lookup = true;
    options.prompt_lookup_gated = gated;
    auto engine = make(nullptr, options);
    EXPECT_NE(engine->speculation_label().find(gated ? "gated" : "graded"), std::string::npos);
    for (int i = 0; i < 3; ++i) {
      const Request r = request(40, i, 120);
      EXPECT_EQ(run(*engine, r).tokens, FakeModel::answer(r.prompt, 120));
    }
  }
}

TEST_F(SpeculationTest, ADrafterThatFailsIsGivenUp) {
  auto engine = make(same());
  drafts_->broken = true;
  const Request r = request(7, 1, 30);
  EXPECT_EQ(run(*engine, r).tokens, FakeModel::answer(r.prompt, 30));
  EXPECT_EQ(run(*engine, r).tokens, FakeModel::answer(r.prompt, 30));
}

TEST_F(SpeculationTest, DraftsThatDoNotPayStop) {
  auto engine = make(poor());
  drafts_->step_ms = 2;  // a token of a draft costs far more than a step
  const Outcome outcome = run(*engine, request(7, 1, 200));
  EXPECT_LT(outcome.finished->timings.draft_rounds, 40);
}

TEST_F(SpeculationTest, TheLastTokenIsNotOvershot) {
  EngineOptions options;
  options.draft_tokens = 8;
  options.draft_adaptive = false;
  auto engine = make(same(), options);
  for (int n : {1, 2, 3, 9}) EXPECT_EQ(run(*engine, request(6, n, n)).tokens.size(), static_cast<size_t>(n));
}

TEST_F(SpeculationTest, OptionsAreChecked) {
  const auto message = [&](EngineOptions options, std::function<std::unique_ptr<Model>()> drafter) {
    try {
      make(std::move(drafter), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EngineOptions both;
  both.prompt_lookup = true;
  EXPECT_NE(message(both, same()).find("draft-kind"), std::string::npos);
  EngineOptions many;
  many.draft_tokens = 65;
  EXPECT_NE(message(many, same()).find("draft"), std::string::npos);
  EngineOptions sure;
  sure.draft_p_min = 1.5f;
  EXPECT_NE(message(sure, same()).find("draft-p-min"), std::string::npos);
  EXPECT_NE(message({}, [this] { return std::make_unique<FakeModel>(drafts_, true); }).find("encoder"),
            std::string::npos);
}

TEST_F(SpeculationTest, BlocksAreComparedWithSingleStepsFirst) {
  const auto verdict = [](float off) {
    InexactModel model(off);
    StateStore store(model.layout(), StoreOptions{.kv_dtype = mx::float16, .max_tokens = 512});
    const VerifyCheck check = check_verify(model, store, 5, 8);
    EXPECT_EQ(store.pages_free(), store.pages_total());
    return check.verdict;
  };
  EXPECT_EQ(verdict(0.0f), VerifyCheck::Verdict::exact);
  EXPECT_EQ(verdict(0.005f), VerifyCheck::Verdict::within_tolerance);
  EXPECT_EQ(verdict(3.0f), VerifyCheck::Verdict::declined);

  Checkpoint checkpoint;
  EngineOptions options;
  options.prompt_lookup = true;
  try {
    Engine::with_model([] { return std::make_unique<InexactModel>(3.0f); }, nullptr, nullptr, checkpoint,
                       options);
    ADD_FAILURE() << "a model that cannot verify was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

TEST_F(SpeculationTest, DraftersFollowRowsThatGoAnotherWay) {
  ModelDrafter drafter(std::make_unique<FakeModel>(drafts_),
                       {.kv_dtype = mx::float32, .context = 256, .rows = 2, .vocab = FakeModel::kVocab});
  std::vector<int32_t> tokens = {5, 6, 7, 8};
  const auto draft = [&](uint64_t row, int most, int budget = 100) {
    DraftAsk ask{.row = row, .tokens = tokens, .most = most};
    drafter.draft({&ask, 1}, budget);
    return ask.draft;
  };
  EXPECT_EQ(draft(1, 4), FakeModel::answer(tokens, 4));
  // Two were taken, then another token came.
  auto next = FakeModel::answer(tokens, 2);
  tokens.insert(tokens.end(), next.begin(), next.end());
  tokens.push_back(50);
  EXPECT_EQ(draft(1, 3), FakeModel::answer(tokens, 3));
  EXPECT_EQ(draft(1, 3), FakeModel::answer(tokens, 3));  // nothing new
  EXPECT_EQ(draft(2, 2, 3), std::vector<int32_t>{});     // not caught up within its budget
  EXPECT_EQ(draft(2, 2, 100), FakeModel::answer(tokens, 2));
  EXPECT_EQ(drafter.rows(), 2u);
  const uint64_t kept[] = {2};
  drafter.keep_only(kept);
  EXPECT_EQ(drafter.rows(), 1u);
  // A row cannot be followed beyond the window.
  tokens.resize(254, 4);
  EXPECT_TRUE(draft(2, 3, 1000).empty());
}

}  // namespace
}  // namespace mlxcel
