// Drafts by a checkpoint's own further-predicting block, on random weights: they are seldom right, and change
// nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/channel.h"
#include "engine/engine.h"
#include "models/synthetic.h"

namespace mlxcel {
namespace {

using Json = nlohmann::json;

std::unique_ptr<Model> build(const std::string& name) {
  std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/mtp/") + name + ".json");
  const Json json = Json::parse(file);
  std::vector<TensorShape> tensors;
  for (const auto& [tensor, shape] : json.at("tensors").items()) {
    const auto sizes = shape.get<std::vector<int>>();
    tensors.push_back({tensor, Shape(sizes.begin(), sizes.end())});
  }
  return build_model(Config::parse(json.at("config").dump(), name), synthetic_source(tensors));
}

struct Answer {
  std::vector<int32_t> tokens;
  Timings timings;
  std::string error;
};

std::shared_ptr<Channel<Event>> start(Engine& engine, Request request) {
  auto events = std::make_shared<Channel<Event>>();
  engine.submit(std::move(request), [events](Event e) { events->push(std::move(e)); });
  return events;
}

Answer wait(Channel<Event>& events) {
  Answer answer;
  while (auto event = events.pop_for(std::chrono::seconds(60))) {
    if (auto* token = std::get_if<Token>(&*event)) answer.tokens.push_back(token->draw.token);
    if (auto* finished = std::get_if<Finished>(&*event)) {
      answer.timings = finished->timings;
      return answer;
    }
    if (auto* failed = std::get_if<Failed>(&*event)) {
      answer.error = failed->error.what();
      return answer;
    }
  }
  answer.error = "no event";
  return answer;
}

Request request(int vocab, int i) {
  Request r;
  std::mt19937 rng(static_cast<unsigned>(i));
  for (int k = 0; k < 5 + 17 * i; ++k)
    r.prompt.push_back(static_cast<int32_t>(rng() % static_cast<unsigned>(vocab)));
  r.max_tokens = 30;
  r.ignore_eos = true;
  r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
  r.sampling.seed = static_cast<uint32_t>(i);
  return r;
}

class MtpEngine : public ::testing::TestWithParam<const char*> {};

TEST_P(MtpEngine, DraftsChangeNothing) {
  const auto make = [&](bool mtp) {
    EngineOptions options;
    options.internal_mtp = mtp;
    options.draft_tokens = mtp ? 3 : 0;
    options.draft_adaptive = false;
    options.parallel = 4;
    options.context = 128;
    options.prefill_chunk = 20;
    options.step_token_budget = 40;
    return Engine::with_model([&] { return build(GetParam()); }, nullptr, nullptr, Checkpoint{}, options);
  };
  auto plain = make(false), with = make(true);
  EXPECT_EQ(with->draft_kind(), "internal-mtp");
  EXPECT_EQ(plain->draft_kind(), "");
  const int vocab = plain->info().vocab_size;
  std::vector<std::shared_ptr<Channel<Event>>> running;
  for (int i = 0; i < 4; ++i) running.push_back(start(*with, request(vocab, i)));
  for (int i = 0; i < 4; ++i) {
    const Answer want = wait(*start(*plain, request(vocab, i))), got = wait(*running[static_cast<size_t>(i)]);
    EXPECT_EQ(got.error, "");
    EXPECT_EQ(want.tokens, got.tokens) << i;
    EXPECT_GT(got.timings.drafted, 10) << i;
  }
  // Again, from the prompt cache: what was not seen of the prompt is no hindrance.
  const Answer again = wait(*start(*with, request(vocab, 3)));
  EXPECT_GT(again.timings.cached_tokens, 0);
  EXPECT_GT(again.timings.drafted, 0);
  EXPECT_EQ(again.tokens, wait(*start(*plain, request(vocab, 3))).tokens);
  const EngineStats stats = with->stats();
  EXPECT_EQ(stats.pages_free, stats.pages_total);
}

INSTANTIATE_TEST_SUITE_P(All, MtpEngine, ::testing::Values("deepseek_v3", "glm4_moe", "qwen3_5"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mlxcel
