// Drafts by a checkpoint's own further-predicting block, on random weights: they are seldom right, and change
// nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/channel.h"
#include "engine/engine.h"
#include "models/synthetic.h"
#include "soak.h"

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

/// A storm of requests over a model that drafts for itself, as `change` says.
void soak_own_drafts(const std::string& name, const std::function<std::unique_ptr<Model>()>& build,
                     const std::function<void(EngineOptions&)>& change) {
  const soak::Subject subject{.name = name,
                              .make =
                                  [&](EngineOptions options, bool own_draft) {
                                    options.warmup = false;
                                    if (own_draft) change(options);
                                    return Engine::with_model(build, nullptr, nullptr, Checkpoint{}, options);
                                  },
                              .kinds = [](Engine& cold, const soak::Alone& alone,
                                          int window) { return soak::branching(cold, alone, window, false); },
                              .only_own_drafts = true,
                              .own_is_right = false};
  soak::run(subject, "fp16", soak::asked_for(100) / soak::kSettings);
}

TEST_P(MtpEngine, ManyRequests) {
  soak_own_drafts(
      GetParam(), [] { return build(GetParam()); }, [](EngineOptions& o) { o.internal_mtp = true; });
}

INSTANTIATE_TEST_SUITE_P(All, MtpEngine,
                         ::testing::Values("bailing_moe", "deepseek_v3", "glm4_moe", "longcat_flash",
                                           "mimo_v2_flash", "nemotron_h", "qwen3_5", "qwen3_next", "step3p5"),
                         [](const auto& given) { return std::string(given.param); });

std::shared_ptr<Source> source_of(const Json& tensors) {
  std::vector<TensorShape> list;
  for (const auto& [tensor, shape] : tensors.items()) {
    const auto sizes = shape.get<std::vector<int>>();
    list.push_back({tensor, Shape(sizes.begin(), sizes.end())});
  }
  return synthetic_source(list);
}

/// A small target of three layers, of the block drafters' width.
std::unique_ptr<Model> target_of_block_drafters() {
  Json tensors = {
      {"model.embed_tokens.weight", {97, 48}}, {"model.norm.weight", {48}}, {"lm_head.weight", {97, 48}}};
  for (int i = 0; i < 3; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    tensors[at + "input_layernorm.weight"] = {48};
    tensors[at + "post_attention_layernorm.weight"] = {48};
    tensors[at + "self_attn.q_proj.weight"] = {48, 48};
    tensors[at + "self_attn.k_proj.weight"] = {24, 48};
    tensors[at + "self_attn.v_proj.weight"] = {24, 48};
    tensors[at + "self_attn.o_proj.weight"] = {48, 48};
    tensors[at + "mlp.gate_proj.weight"] = {64, 48};
    tensors[at + "mlp.up_proj.weight"] = {64, 48};
    tensors[at + "mlp.down_proj.weight"] = {48, 64};
  }
  const Json config = {{"model_type", "llama"},       {"vocab_size", 97},
                       {"hidden_size", 48},           {"intermediate_size", 64},
                       {"num_hidden_layers", 3},      {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},    {"head_dim", 12},
                       {"rms_norm_eps", 1e-5},        {"max_position_embeddings", 256},
                       {"tie_word_embeddings", false}};
  return build_model(Config::parse(config.dump(), "target"), source_of(tensors));
}

class BlockDrafts : public ::testing::TestWithParam<const char*> {};

TEST_P(BlockDrafts, ChangeNothing) {
  std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/dflash/") + GetParam() + ".json");
  const Json json = Json::parse(file);
  const auto make = [&](bool drafts) {
    EngineOptions options;
    if (drafts) {
      Checkpoint drafter;
      drafter.path = GetParam();
      drafter.config = Config::parse(json.at("config").dump(), GetParam());
      drafter.source = source_of(json.at("tensors"));
      options.side_drafter = std::make_shared<const Checkpoint>(std::move(drafter));
    }
    options.draft_adaptive = false;
    options.parallel = 4;
    options.context = 128;
    options.prefill_chunk = 20;
    options.step_token_budget = 60;
    return Engine::with_model(target_of_block_drafters, nullptr, nullptr, Checkpoint{}, options);
  };
  auto plain = make(false), with = make(true);
  EXPECT_EQ(with->draft_kind(), "dflash");
  EXPECT_NE(with->speculation_label().find("up to 5 tokens, verify exact"), std::string::npos)
      << with->speculation_label();
  std::vector<std::shared_ptr<Channel<Event>>> running;
  for (int i = 0; i < 4; ++i) running.push_back(start(*with, request(97, i)));
  for (int i = 0; i < 4; ++i) {
    const Answer want = wait(*start(*plain, request(97, i))), got = wait(*running[static_cast<size_t>(i)]);
    EXPECT_EQ(got.error, "");
    EXPECT_EQ(want.tokens, got.tokens) << i;
    EXPECT_GT(got.timings.drafted, 10) << i;
  }
  const Answer again = wait(*start(*with, request(97, 3)));
  EXPECT_GT(again.timings.cached_tokens, 0);
  EXPECT_GT(again.timings.drafted, 0);
  EXPECT_EQ(again.tokens, wait(*start(*plain, request(97, 3))).tokens);
  EXPECT_EQ(with->stats().pages_free, with->stats().pages_total);
  // Longer drafts than such a drafter makes are refused.
  EngineOptions many;
  Checkpoint drafter;
  drafter.config = Config::parse(json.at("config").dump(), GetParam());
  drafter.source = source_of(json.at("tensors"));
  many.side_drafter = std::make_shared<const Checkpoint>(std::move(drafter));
  many.draft_tokens = 6;
  EXPECT_THROW((void)Engine::with_model(target_of_block_drafters, nullptr, nullptr, Checkpoint{}, many),
               Error);
}

TEST_P(BlockDrafts, ManyRequests) {
  std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/dflash/") + GetParam() + ".json");
  const Json json = Json::parse(file);
  soak_own_drafts(GetParam(), target_of_block_drafters, [&](EngineOptions& options) {
    Checkpoint drafter;
    drafter.path = GetParam();
    drafter.config = Config::parse(json.at("config").dump(), GetParam());
    drafter.source = source_of(json.at("tensors"));
    options.side_drafter = std::make_shared<const Checkpoint>(std::move(drafter));
  });
}

/// Gemma 4 beside its assistant, which reads the target's own keys and values.
class Assistants : public ::testing::TestWithParam<const char*> {
 protected:
  Assistants() {
    std::ifstream file(std::string(MLXCEL_SOURCE_DIR "/tests/golden/assistant/") + GetParam() + ".json");
    json_ = Json::parse(file);
  }
  std::function<std::unique_ptr<Model>()> target() const {
    return [this] {
      return build_model(Config::parse(json_.at("target").dump(), "target"),
                         source_of(json_.at("target_tensors")));
    };
  }
  void assist(EngineOptions& options) const {
    Checkpoint drafter;
    drafter.path = "assistant";
    drafter.config = Config::parse(json_.at("config").dump(), "assistant");
    drafter.source = source_of(json_.at("tensors"));
    options.side_drafter = std::make_shared<const Checkpoint>(std::move(drafter));
  }
  Json json_;
};

TEST_P(Assistants, ChangeNothing) {
  for (const char* kv : {"fp16", "int8", "turbo4-asym"}) {
    SCOPED_TRACE(kv);
    const auto make = [&](bool drafts) {
      EngineOptions options;
      if (drafts) assist(options);
      options.kv_cache_mode = kv;
      options.kv_boundary_values = 0;
      options.kv_skip_last_layer = false;  // there are four
      options.draft_adaptive = false;
      options.parallel = 4;
      options.context = 128;
      options.prefill_chunk = 20;
      options.step_token_budget = 60;
      return Engine::with_model(target(), nullptr, nullptr, Checkpoint{}, options);
    };
    auto plain = make(false), with = make(true);
    EXPECT_EQ(with->draft_kind(), "mtp");
    EXPECT_NE(with->speculation_label().find("mtp by assistant, up to 4 tokens, verify exact"),
              std::string::npos)
        << with->speculation_label();
    std::vector<std::shared_ptr<Channel<Event>>> running;
    for (int i = 0; i < 4; ++i) running.push_back(start(*with, request(96, i)));
    for (int i = 0; i < 4; ++i) {
      const Answer want = wait(*start(*plain, request(96, i))), got = wait(*running[static_cast<size_t>(i)]);
      EXPECT_EQ(got.error, "");
      EXPECT_EQ(want.tokens, got.tokens) << i;
      EXPECT_GT(got.timings.drafted, 10) << i;
    }
    // From the prompt cache: the state of the last token is all that is asked for.
    const Answer again = wait(*start(*with, request(96, 3)));
    EXPECT_GT(again.timings.cached_tokens, 0);
    EXPECT_GT(again.timings.drafted, 0);
    EXPECT_EQ(again.tokens, wait(*start(*plain, request(96, 3))).tokens);
    EXPECT_EQ(with->stats().pages_free, with->stats().pages_total);
  }
}

TEST_P(Assistants, ManyRequests) {
  soak_own_drafts(GetParam(), target(), [this](EngineOptions& options) { assist(options); });
}

INSTANTIATE_TEST_SUITE_P(All, Assistants, ::testing::Values("plain", "shared"),
                         [](const auto& given) { return std::string(given.param); });

INSTANTIATE_TEST_SUITE_P(All, BlockDrafts, ::testing::Values("qwen3", "muse", "laguna", "dspark"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace mlxcel
