// Adapters through the engine: loaded and unloaded while rows run, scaled by default and by request, told
// apart by the prompt cache.
#include <gtest/gtest.h>

#include <limits>

#include "base/channel.h"
#include "engine/engine.h"
#include "network.h"
#include "peft_folder.h"

namespace mlxcel {
namespace {

using Tokens = std::vector<int32_t>;

class AdapterEngine : public ::testing::Test {
 protected:
  static const NamedArch& llama() {
    for (const NamedArch& entry : arch_table())
      if (entry.family == "llama") return entry;
    throw std::runtime_error("no llama");
  }
  static std::unique_ptr<Model> build() {
    return build_model(archtest::tiny_config(llama()), archtest::tiny_source(llama()));
  }
  void SetUp() override {
    const auto matrices = archtest::adaptable(llama(), *build());
    first_ = std::make_unique<archtest::PeftFolder>(matrices, 1);
    second_ = std::make_unique<archtest::PeftFolder>(matrices, 2);
  }
  std::unique_ptr<Engine> make(std::vector<AdapterSource> adapters, EngineOptions options = {}) const {
    options.adapters = std::move(adapters);
    options.context = 128;
    options.warmup = false;
    return Engine::with_model(build, nullptr, nullptr, Checkpoint{}, options);
  }
  static Request request(std::optional<std::vector<AdapterScale>> adapters = {}) {
    Request r;
    r.prompt = archtest::some_tokens(60, 70);
    r.max_tokens = 12;
    r.ignore_eos = true;
    r.sampling.logprobs = 0;
    r.adapters = std::move(adapters);
    return r;
  }
  struct Answer {
    std::vector<std::pair<int32_t, float>> tokens;
    int cached = 0;
    bool operator==(const Answer& other) const { return tokens == other.tokens; }
  };
  static std::shared_ptr<Channel<Event>> start(Engine& engine, Request request) {
    auto events = std::make_shared<Channel<Event>>();
    engine.submit(std::move(request), [events](Event e) { events->push(std::move(e)); });
    return events;
  }
  static Answer wait(Channel<Event>& events) {
    Answer answer;
    while (auto event = events.pop_for(std::chrono::seconds(30))) {
      if (auto* token = std::get_if<Token>(&*event))
        answer.tokens.emplace_back(token->draw.token, token->draw.logprob);
      if (auto* finished = std::get_if<Finished>(&*event)) answer.cached = finished->timings.cached_tokens;
      if (auto* failed = std::get_if<Failed>(&*event)) ADD_FAILURE() << failed->error.what();
      if (!std::holds_alternative<Token>(*event)) return answer;
    }
    ADD_FAILURE() << "no event";
    return answer;
  }
  static Answer run(Engine& engine, std::optional<std::vector<AdapterScale>> adapters = {}) {
    return wait(*start(engine, request(std::move(adapters))));
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

  std::unique_ptr<archtest::PeftFolder> first_, second_;
};

TEST_F(AdapterEngine, ScalesAreThoseInForceOrThoseAskedFor) {
  auto bare = make({});
  const Answer plain = run(*bare);
  auto engine = make({{first_->path(), 1.0f}, {second_->path(), 0.0f}});
  const auto list = engine->adapters();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, 0);
  EXPECT_EQ(list[0].path, first_->path().string());
  EXPECT_EQ(list[0].format, "PEFT");
  EXPECT_EQ(list[0].rank, archtest::PeftFolder::kRank);
  const Answer with = run(*engine);
  EXPECT_NE(with, plain);
  EXPECT_EQ(run(*engine, {{{0, 1.0f}}}), with);
  EXPECT_EQ(run(*engine, std::vector<AdapterScale>{}), plain);  // none
  EXPECT_EQ(run(*engine, {{{0, 0.0f}, {1, 0.0f}}}), plain);     // scale 0 adds nothing, bit for bit
  const Answer other = run(*engine, {{{1, 1.0f}}});
  EXPECT_NE(other, plain);
  EXPECT_NE(other, with);
  EXPECT_NE(run(*engine, {{{0, 0.5f}}}), with);

  EXPECT_EQ(engine->set_adapter_scales({{1, 1.0f}, {7, 1.0f}}), std::vector<int>{7});
  EXPECT_EQ(run(*engine), other);  // the first is at 0 now
  EXPECT_EQ(engine->adapters()[0].scale, 0.0f);

  auto waiting = make({{first_->path(), 1.0f}}, [] {
    EngineOptions o;
    o.adapters_apply = false;
    return o;
  }());
  EXPECT_EQ(run(*waiting), plain);
  EXPECT_EQ(run(*waiting, {{{0, 1.0f}}}), with);
}

TEST_F(AdapterEngine, ThePromptCacheTellsSetsApart) {
  auto engine = make({{first_->path(), 0.0f}, {second_->path(), 0.0f}});
  const Answer plain = run(*engine);
  const Answer first = run(*engine, {{{0, 1.0f}}});
  EXPECT_EQ(first.cached, 0);
  const Answer again = run(*engine, {{{0, 1.0f}}});
  EXPECT_GT(again.cached, 0);
  EXPECT_EQ(again, first);
  EXPECT_EQ(run(*engine, {{{0, 0.5f}}}).cached, 0);
  EXPECT_EQ(run(*engine, {{{1, 1.0f}}}).cached, 0);
  const Answer bare = run(*engine);
  EXPECT_GT(bare.cached, 0);
  EXPECT_EQ(bare, plain);
}

TEST_F(AdapterEngine, LoadsAndUnloadsWhileRowsRun) {
  auto engine = make({});
  const int id = engine->load_adapter({first_->path(), 1.0f});
  const Answer with = run(*engine);
  Request longer = request();
  longer.max_tokens = 50;
  const auto running = start(*engine, longer);
  engine->unload_adapter(id);
  const int next = engine->load_adapter({second_->path(), 1.0f});
  EXPECT_NE(next, id);
  const Answer kept = wait(*running);  // it keeps what it began with
  for (size_t i = 0; i < with.tokens.size(); ++i) EXPECT_EQ(kept.tokens[i], with.tokens[i]);
  EXPECT_NE(run(*engine), with);
  EXPECT_EQ(error_of([&] { engine->unload_adapter(id); }).kind(), ErrorKind::not_found);
  const Error unknown = error_of([&] { engine->submit(request({{{id, 1.0f}}}), [](Event) {}); });
  EXPECT_EQ(unknown.kind(), ErrorKind::invalid_request);
  EXPECT_EQ(unknown.param(), "lora");
  EXPECT_EQ(error_of([&] { engine->load_adapter({first_->path() / "nowhere", 1.0f}); }).kind(),
            ErrorKind::not_found);
  EXPECT_EQ(error_of([&] {
              engine->load_adapter({first_->path(), std::numeric_limits<float>::infinity()});
            }).kind(),
            ErrorKind::invalid_request);
}

TEST_F(AdapterEngine, PairsThatFitNothingAreNamed) {
  const archtest::PeftFolder stray({{"model.layers.7.self_attn.q_proj.weight", {8, 8}}}, 1);
  auto engine = make({});
  const Error error = error_of([&] { engine->load_adapter({stray.path(), 1.0f}); });
  EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint);
  EXPECT_NE(std::string(error.what()).find("layers.7.self_attn.q_proj"), std::string::npos) << error.what();
  const archtest::PeftFolder wide({{"model.layers.0.self_attn.q_proj.weight", {8, 8}}}, 1);
  const Error shape = error_of([&] { engine->load_adapter({wide.path(), 1.0f}); });
  EXPECT_NE(std::string(shape.what()).find("[8, 8]"), std::string::npos) << shape.what();
  EXPECT_TRUE(engine->adapters().empty());
}

}  // namespace
}  // namespace mlxcel
