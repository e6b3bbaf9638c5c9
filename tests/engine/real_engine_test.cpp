// The loop on real weights: what a request gets does not depend on who else is there.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/channel.h"
#include "engine/engine.h"
#include "engine/front/prompt.h"
#include "engine/generation.h"
#include "real_model.h"

namespace mlxcel {
namespace {

struct Outcome {
  std::vector<Draw> draws;
  std::optional<FinishReason> reason;
  Timings timings;
  std::string error;
};

struct Running {
  std::shared_ptr<Channel<Event>> events = std::make_shared<Channel<Event>>();
  Outcome wait() {
    Outcome outcome;
    while (auto event = events->pop_for(std::chrono::seconds(120))) {
      if (auto* token = std::get_if<Token>(&*event)) outcome.draws.push_back(token->draw);
      if (auto* finished = std::get_if<Finished>(&*event)) {
        outcome.reason = finished->reason;
        outcome.timings = finished->timings;
        return outcome;
      }
      if (auto* failed = std::get_if<Failed>(&*event)) {
        outcome.error = failed->error.what();
        return outcome;
      }
    }
    outcome.error = "no event in 120 s";
    return outcome;
  }
};

// Tokens and the bits of their log-probabilities.
void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(b.error, "") << what;
  EXPECT_EQ(a.reason, b.reason) << what;
  ASSERT_EQ(a.draws.size(), b.draws.size()) << what;
  for (size_t i = 0; i < a.draws.size(); ++i) {
    ASSERT_EQ(a.draws[i].token, b.draws[i].token) << what << ", token " << i;
    ASSERT_EQ(a.draws[i].logprob, b.draws[i].logprob) << what << ", token " << i;
    for (size_t k = 0; k < a.draws[i].top.size(); ++k)
      ASSERT_EQ(a.draws[i].top[k].logprob, b.draws[i].top[k].logprob) << what << ", token " << i;
  }
}

class SmolLm2Engine : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = real::find(real::kSmolLm2);
    if (!found)
      GTEST_SKIP() << "SmolLM2-135M-Instruct is not in the model store: scripts/fetch_model.sh puts it there";
    path_ = *found;
  }
  std::unique_ptr<Engine> load(EngineOptions options) const {
    options.model = path_;
    return Engine::load(options);
  }
  static std::vector<TokenId> chat(const Engine& engine, const std::string& text) {
    TemplateInput input;
    input.messages_json = nlohmann::json::array({{{"role", "user"}, {"content", text}}}).dump();
    return chat_prompt(*engine.tokenizer(), engine.chat_template().get(), input);
  }
  static Running start(Engine& engine, Request request) {
    Running running;
    engine.submit(std::move(request), [events = running.events](Event e) { events->push(std::move(e)); });
    return running;
  }
  // Sixteen questions with numbers of their own; every other one is sampled.
  static std::vector<Request> questions(const Engine& engine) {
    const std::vector<std::string> topics = {"Paris",    "cats",           "rain",
                                             "the moon", "boiling an egg", "three colours"};
    std::vector<Request> all;
    for (int i = 0; i < 16; ++i) {
      Request request;
      std::string text = "Say the number " + std::to_string(1000 + 37 * i) + " and something about " +
                         topics[static_cast<size_t>(i) % topics.size()] + ".";
      if (i % 5 == 4)
        for (int k = 0; k < 12; ++k) text += " Remember that the sky is blue and the grass is green.";
      request.prompt = chat(engine, text);
      request.max_tokens = 6 + i / 2;
      request.sampling.logprobs = 3;
      if (i % 2 == 1) {
        request.sampling.temperature = 0.8f;
        request.sampling.top_p = 0.9f;
        request.sampling.seed = static_cast<uint32_t>(i);
      }
      all.push_back(std::move(request));
    }
    return all;
  }
  std::filesystem::path path_;
};

TEST_F(SmolLm2Engine, NamesParis) {
  const auto engine = load({});
  Request request;
  request.prompt = chat(*engine, "What is the capital of France?");
  request.max_tokens = 64;
  std::string text;
  const TextEnd end =
      generate(*engine, std::move(request), {}, [&](const TextDelta& delta) { text += delta.text; });
  text += end.text;
  EXPECT_NE(text.find("Paris"), std::string::npos) << text;
  EXPECT_EQ(end.finish, "stop");
  EXPECT_EQ(engine->kv_label(), "f16: applied to 30 of 30 layers");
}

TEST_F(SmolLm2Engine, SixteenAtOnceAreEachAsAlone) {  // H6
  std::vector<Outcome> alone;
  {
    const auto engine = load({});
    for (auto& request : questions(*engine)) alone.push_back(start(*engine, std::move(request)).wait());
  }
  const auto compare = [&](EngineOptions options, const std::string& what, int pause_ms) {
    const auto engine = load(std::move(options));
    std::mt19937 rng(3);
    std::vector<Running> running;
    for (auto& request : questions(*engine)) {
      running.push_back(start(*engine, std::move(request)));
      if (pause_ms > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(rng() % static_cast<unsigned>(pause_ms)));
    }
    for (size_t i = 0; i < running.size(); ++i)
      expect_same(alone[i], running[i].wait(), what + ", request " + std::to_string(i));
    return engine->stats();
  };
  EngineOptions options;
  options.parallel = 16;
  compare(options, "sixteen slots", 0);
  options.step_token_budget = 20;
  options.prefill_chunk = 50;
  EXPECT_GT(compare(options, "small chunks", 40).mixed_steps, 0u);
  options.parallel = 5;
  options.step_token_budget = 0;
  options.context = 512;
  options.max_kv_tokens = 512;
  compare(options, "few pages", 0);
}

TEST_F(SmolLm2Engine, ADraftByItselfIsAllAcceptedAndChangesNothing) {  // H30
  std::vector<Outcome> plain;
  {
    const auto engine = load({});
    for (auto& request : questions(*engine)) plain.push_back(start(*engine, std::move(request)).wait());
  }
  EngineOptions options;
  options.draft_model = path_;
  options.draft_tokens = 4;
  options.draft_adaptive = false;
  options.parallel = 16;
  const auto engine = load(options);
  EXPECT_NE(engine->speculation_label().find("verify exact"), std::string::npos)
      << engine->speculation_label();
  std::vector<Running> running;
  for (auto& request : questions(*engine)) running.push_back(start(*engine, std::move(request)));
  for (size_t i = 0; i < running.size(); ++i) {
    const Outcome with = running[i].wait();
    expect_same(plain[i], with, "request " + std::to_string(i));
    if (i % 2 == 0 && with.timings.generated_tokens > 6) {  // greedy
      EXPECT_GT(with.timings.drafted, 0) << i;
      EXPECT_EQ(with.timings.accepted, with.timings.drafted) << i;
    }
  }
}

TEST_F(SmolLm2Engine, PromptLookupDoublesDecodeWhereTextIsCopied) {
  const std::string text =
      "The river Aare rises in the great Aargletschers of the Bernese Alps, below the Finsteraarhorn and "
      "west of "
      "the Grimsel Pass. It runs for 288 kilometres to the Rhine near Koblenz, past Thun, Bern, Solothurn "
      "and "
      "Olten, and takes up the Reuss and the Limmat on its way.";
  Outcome answers[2];
  for (const bool lookup : {false, true}) {
    EngineOptions options;
    options.prompt_lookup = lookup;
    const auto engine = load(options);
    Request request;
    request.prompt = chat(*engine, "Copy this text word for word, three times: " + text);
    const auto copied = engine->tokenizer()->encode(text + "\n\n" + text, false);
    request.prompt.insert(request.prompt.end(), copied.begin(), copied.end());  // the answer has begun
    request.max_tokens = 120;
    request.sampling.logprobs = 0;
    answers[lookup ? 1 : 0] = start(*engine, std::move(request)).wait();
  }
  expect_same(answers[0], answers[1], "looked up");
  const Timings &plain = answers[0].timings, &with = answers[1].timings;
  fmt::print("copying: {:.1f} tok/s plain, {:.1f} looked up; {} of {} drafted tokens accepted in {} rounds\n",
             1e3 * (plain.generated_tokens - 1) / plain.decode_ms,
             1e3 * (with.generated_tokens - 1) / with.decode_ms, with.accepted, with.drafted,
             with.draft_rounds);
  EXPECT_GE(with.accepted,
            with.generated_tokens / 2);  // of the time the benchmark speaks: others may be busy here
}

TEST_F(SmolLm2Engine, PromptLogprobsDoNotDependOnChunks) {
  std::vector<Draw> whole;
  for (const int chunk : {0, 17}) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    const auto engine = load(options);
    Request request;
    request.prompt = chat(*engine, "Tell me about the history of bread, please.");
    request.max_tokens = 0;
    request.prompt_logprobs = true;
    request.sampling.logprobs = 1;
    const size_t expected = request.prompt.size() - 1;
    std::vector<Draw> scored;
    auto events = std::make_shared<Channel<Event>>();
    engine->submit(std::move(request), [events](Event e) { events->push(std::move(e)); });
    while (auto event = events->pop_for(std::chrono::seconds(120))) {
      if (auto* part = std::get_if<Scored>(&*event))
        scored.insert(scored.end(), part->tokens.begin(), part->tokens.end());
      if (std::holds_alternative<Finished>(*event) || std::holds_alternative<Failed>(*event)) break;
    }
    ASSERT_EQ(scored.size(), expected);
    if (chunk == 0) whole = scored;
    for (size_t i = 0; i < scored.size(); ++i) EXPECT_EQ(scored[i].logprob, whole[i].logprob) << i;
  }
}

TEST(MiniLmEngine, VectorsAreSentenceTransformers) {
  const auto found = real::find(real::kMiniLm);
  if (!found) GTEST_SKIP() << "all-MiniLM-L6-v2 is not in the model store: tests/real/fetch.sh puts it there";
  std::ifstream file(MLXCEL_SOURCE_DIR "/tests/real/data/minilm_vectors.json");
  const auto reference = nlohmann::json::parse(file);
  EngineOptions options;
  options.model = *found;
  const auto engine = Engine::load(options);
  EXPECT_EQ(engine->max_input(), 256);
  EmbedRequest request;
  for (const auto& row : reference.at("rows"))
    request.inputs.push_back(engine->tokenizer()->encode(row.at("text").get<std::string>(), true));
  request.truncate = true;
  const Embeddings all = engine->embed(request);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const auto expected = reference.at("rows")[i].at("vector").get<std::vector<double>>();
    ASSERT_EQ(all.vectors[i].size(), expected.size());
    double worst = 0;
    for (size_t k = 0; k < expected.size(); ++k)
      worst = std::max(worst, std::abs(static_cast<double>(all.vectors[i][k]) - expected[k]));
    EXPECT_LE(worst, 1e-5) << reference.at("rows")[i].at("text");
    EmbedRequest one;
    one.inputs = {request.inputs[i]};
    one.truncate = true;
    EXPECT_EQ(engine->embed(one).vectors[0], all.vectors[i]) << "alone as among others, bit for bit";
  }
}

}  // namespace
}  // namespace mlxcel
