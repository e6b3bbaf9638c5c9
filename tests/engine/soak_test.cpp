// A randomised soak over every decoder's tiny model: shared prefixes, turns that go on, random arrival,
// cancellation, choices, a cache too small for all of it, drafts. Each answer equals the same request's,
// alone and cold, bit for bit, and nothing leaks. MLXCEL_SOAK=N: N requests for each family and setting (500
// in the long run).
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "base/channel.h"
#include "engine/engine.h"
#include "network.h"
#include "peft_folder.h"

namespace mlxcel {
namespace {

struct Answer {
  std::vector<Draw> draws;
  std::optional<Finished> finished;
  std::string error;
};

struct Running {
  size_t kind = 0;
  std::shared_ptr<Channel<Event>> events = std::make_shared<Channel<Event>>();
  Handle handle;
  bool cancelled = false;

  Answer wait() {
    Answer answer;
    while (auto event = events->pop_for(std::chrono::seconds(60))) {
      if (auto* token = std::get_if<Token>(&*event)) answer.draws.push_back(token->draw);
      if (auto* finished = std::get_if<Finished>(&*event)) {
        answer.finished = *finished;
        return answer;
      }
      if (auto* failed = std::get_if<Failed>(&*event)) {
        answer.error = failed->error.what();
        return answer;
      }
    }
    answer.error = "no event in 60 s";
    return answer;
  }
};

std::vector<std::string> decoders() {
  std::vector<std::string> names;
  for (const NamedArch& entry : arch_table())
    if (entry.arch.kind == "decoder") names.push_back(entry.family);
  return names;
}

const NamedArch& arch(const std::string& family) {
  for (const NamedArch& entry : arch_table())
    if (entry.family == family) return entry;
  throw std::runtime_error("no architecture " + family);
}

class Soak : public ::testing::TestWithParam<std::string> {
 protected:
  mutable std::vector<std::unique_ptr<archtest::PeftFolder>> folders;

  std::unique_ptr<Engine> make(EngineOptions options, bool own_draft = false) const {
    const NamedArch& entry = arch(GetParam());
    options.warmup = false;
    options.kv_boundary_values = 0;
    options.kv_skip_last_layer = false;  // tiny models have few layers
    const auto build = [&entry] {
      return build_model(archtest::tiny_config(entry), archtest::tiny_source(entry));
    };
    if (own_draft) options.make_drafter = build;
    auto engine = Engine::with_model(build, nullptr, nullptr, Checkpoint{}, options);
    if (folders.empty()) {
      const auto matrices = archtest::adaptable(entry, *build());
      std::vector<TensorShape> half;
      for (size_t i = 0; i < matrices.size(); i += 2) half.push_back(matrices[i]);
      folders.push_back(std::make_unique<archtest::PeftFolder>(matrices, 1));
      folders.push_back(std::make_unique<archtest::PeftFolder>(half, 2));
    }
    for (const auto& folder : folders) engine->load_adapter({folder->path(), 0.0f});
    return engine;
  }
  static Running start(Engine& engine, Request request, size_t kind) {
    Running running;
    running.kind = kind;
    running.handle =
        engine.submit(std::move(request), [events = running.events](Event e) { events->push(std::move(e)); });
    return running;
  }
  void run(const std::string& kv, int by_default);
  // Alone and cold.
  Answer reference(Engine& engine, Request request) const {
    request.group = 0;
    return start(engine, std::move(request), 0).wait();
  }
  static void expect_same(const Answer& want, const Answer& found, const std::string& what, bool cancelled) {
    ASSERT_EQ(found.error, "") << what;
    if (!cancelled) {
      ASSERT_EQ(want.draws.size(), found.draws.size()) << what;
    }
    ASSERT_LE(found.draws.size(), want.draws.size()) << what;
    for (size_t i = 0; i < found.draws.size(); ++i) {
      ASSERT_EQ(want.draws[i].token, found.draws[i].token) << what << ", token " << i;
      ASSERT_EQ(want.draws[i].logprob, found.draws[i].logprob) << what << ", token " << i;
    }
  }
};

// Prompts that branch off three stems, some going on with an earlier answer; every third is sampled.
std::vector<Request> kinds_of(Engine& cold, const std::function<Answer(Request)>& answer, int window) {
  std::mt19937 rng(11);
  const int vocab = cold.info().vocab_size;
  std::vector<std::vector<TokenId>> stems(3);
  for (auto& stem : stems)
    for (size_t i = 0; i < 34 + 30 * static_cast<size_t>(&stem - stems.data()); ++i)
      stem.push_back(static_cast<TokenId>(rng() % static_cast<unsigned>(vocab)));
  std::vector<Request> kinds;
  for (size_t k = 0; k < 18; ++k) {
    Request r;
    r.prompt = stems[k % 3];
    if (k >= 12) {
      // A turn later: the prompt, its answer, and something new.
      r.prompt = kinds[k - 12].prompt;
      for (const Draw& draw : answer(kinds[k - 12]).draws) r.prompt.push_back(draw.token);
    } else if (k % 4 == 3) {
      r.prompt.resize(3 + k);
    }
    for (size_t i = rng() % 20; i > 0; --i)
      r.prompt.push_back(static_cast<TokenId>(rng() % static_cast<unsigned>(vocab)));
    if (r.prompt.size() > static_cast<size_t>(window) - 8) r.prompt.resize(static_cast<size_t>(window) - 8);
    r.max_tokens = 4 + static_cast<int>(rng() % 24);
    r.max_tokens = std::min(r.max_tokens, window - static_cast<int>(r.prompt.size()));
    r.ignore_eos = true;
    r.sampling.logprobs = 0;
    r.cache_scope = k % 5 == 4 ? "other" : "";
    if (k % 3 == 1) r.adapters = {{static_cast<int>(k % 2), 0.8f}};
    if (k % 6 == 5) r.adapters = {{0, 0.5f}, {1, 1.0f}};
    if (k % 3 == 2) {
      r.sampling.temperature = 0.7f;
      r.sampling.repeat_penalty = 1.1f;
      r.sampling.seed = static_cast<uint32_t>(k);
    }
    kinds.push_back(std::move(r));
  }
  return kinds;
}

void Soak::run(const std::string& kv, int by_default) {
  constexpr int kWindow = 192;
  const char* asked = std::getenv("MLXCEL_SOAK");
  const int requests = asked != nullptr ? std::atoi(asked) : by_default;
  EngineOptions plain;
  plain.kv_cache_mode = kv;
  plain.parallel = 1;
  plain.prompt_cache = false;
  auto cold = make(plain);
  const int window = std::min(kWindow, cold->context());
  const auto alone = [&](Request r) { return reference(*cold, std::move(r)); };
  const std::vector<Request> kinds = kinds_of(*cold, alone, window);
  std::vector<Answer> answers;
  for (const Request& r : kinds) {
    answers.push_back(alone(r));
    ASSERT_EQ(answers.back().error, "");
  }
  cold.reset();

  struct Setting {
    const char* name;
    bool cache, lookup, own_draft;
    size_t pages;
  };
  for (const Setting& setting :
       {Setting{"cache", true, false, false, 14}, Setting{"cache and drafts", true, true, false, 20},
        Setting{"drafts", false, true, false, 12}, Setting{"cache, own draft", true, false, true, 20}}) {
    EngineOptions options;
    options.kv_cache_mode = kv;
    options.parallel = 5;
    options.context = window;
    options.prefill_chunk = 24;
    options.step_token_budget = 20;
    options.prompt_cache = setting.cache;
    options.prompt_lookup = setting.lookup;
    options.draft_tokens = setting.lookup || setting.own_draft ? 3 : 0;
    options.draft_adaptive = false;
    options.prompt_lookup_max_batch = options.parallel;
    options.max_kv_tokens = setting.pages * 32;
    options.preemption = setting.cache;
    auto engine = make(options, setting.own_draft);
    std::mt19937 rng(7);
    std::vector<Running> running;
    size_t checked = 0;
    const auto settle = [&](size_t keep) {
      for (; running.size() - checked > keep; ++checked) {
        Running& r = running[checked];
        expect_same(answers[r.kind], r.wait(),
                    fmt::format("{}, {}, request {} (kind {})", GetParam(), setting.name, checked, r.kind),
                    r.cancelled);
      }
    };
    for (int i = 0; i < requests && !HasFatalFailure(); ++i) {
      const size_t kind = rng() % kinds.size();
      Request request = kinds[kind];
      request.priority = static_cast<Priority>(rng() % 3);
      request.key = rng() % 2 == 0 ? "a" : "b";
      const int choices = rng() % 6 == 0 ? 3 : 1;
      if (choices > 1) request.group = static_cast<uint64_t>(i + 1);
      for (int c = 0; c < choices; ++c) {
        running.push_back(start(*engine, request, kind));
        if (rng() % 7 != 0) continue;
        running.back().cancelled = true;
        running.back().handle.cancel();
      }
      if (rng() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 3000));
      settle(24);
    }
    settle(0);
    if (HasFatalFailure()) return;
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.pages_free, stats.pages_total) << setting.name;
    EXPECT_EQ(stats.cache_hits > 0, setting.cache) << setting.name;
    if (!setting.lookup && !setting.own_draft) {
      EXPECT_EQ(stats.drafted, 0u) << setting.name;
    }
    // Random weights need not repeat themselves; those of this family do.
    if (setting.lookup && GetParam() == "llama") {
      EXPECT_GT(stats.drafted, 0u) << setting.name;
    }
    // Rows without adapters are its drafter's own; greedy ones draw what it drafts.
    if (setting.own_draft) {
      EXPECT_GT(stats.accepted, 0u) << setting.name;
    }
    engine->clear_prompt_cache();
    EXPECT_EQ(engine->stats().cache_bytes, 0u);
    fmt::print(
        "{:<14} {:<11} {:<17} {} rows, hits {}, tokens reused {}, evicted {}, put back {}, drafted {}, "
        "accepted "
        "{}\n",
        GetParam(), kv, setting.name, running.size(), stats.cache_hits, stats.cache_tokens_reused,
        stats.cache_evictions, stats.preemptions, stats.drafted, stats.accepted);
  }
}

TEST_P(Soak, EveryAnswerIsThatOfTheRequestAloneAndCold) { run("fp16", 24); }

/// One family of each kind of state.
class Kinds : public Soak {};

// H31: a mode is applied, with its counts said, or refused before the first request.
TEST_P(Kinds, KvModesToo) {
  const auto none = GetParam() == "mamba2";
  const auto latent = GetParam() == "deepseek_v3";
  for (const std::string mode : {"int8", "turbo4", "turbo4-asym", "turbo3-asym"}) {
    SCOPED_TRACE(mode);
    EngineOptions options;
    options.kv_cache_mode = mode;
    options.kv_boundary_values = 0;
    const bool refused = none || (latent && mode.ends_with("asym"));
    try {
      const auto engine = make(options);
      EXPECT_FALSE(refused) << engine->kv_label();
      EXPECT_TRUE(engine->kv_label().starts_with(mode + ": applied to ")) << engine->kv_label();
    } catch (const Error& error) {
      EXPECT_TRUE(refused) << error.what();
      EXPECT_EQ(error.param(), "kv-cache-mode");
    }
    if (!refused) run(mode, mode == "int8" || mode == "turbo4" ? 10 : 6);
    if (HasFatalFailure()) return;
  }
}

// What one engine kept on disk the next one takes up: same answers, prompts not evaluated again; and nothing
// of what was damaged, or is of another scope.
TEST_P(Kinds, PromptsSurviveARestart) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("mlxcel-prompts-{}-{}", GetParam(), ::getpid());
  std::filesystem::remove_all(folder);
  EngineOptions options;
  options.prompt_cache_dir = folder;
  Request request;
  std::mt19937 rng(5);
  auto first = make(options);
  const int vocab = first->info().vocab_size;
  for (int i = 0; i < 75; ++i)
    request.prompt.push_back(static_cast<TokenId>(rng() % static_cast<unsigned>(vocab)));
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.sampling.logprobs = 0;
  const Answer cold = start(*first, request, 0).wait();
  first.reset();
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  ASSERT_GE(files(), 1);

  auto second = make(options);
  const Answer warm = start(*second, request, 0).wait();
  expect_same(cold, warm, GetParam(), false);
  if (HasFatalFailure()) return;
  EXPECT_GE(warm.finished->timings.cached_tokens, 64);
  EXPECT_EQ(second->stats().disk_hits, 1u);
  EXPECT_EQ(second->stats().pages_free, second->stats().pages_total);
  Request other = request;
  other.cache_scope = "another key";
  EXPECT_EQ(start(*second, other, 0).wait().finished->timings.cached_tokens, 0);
  second.reset();

  // One byte in the middle of every file.
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(file.file_size() / 2));
    bytes.put('!');
    bytes.put('?');
  }
  auto third = make(options);
  const Answer again = start(*third, request, 0).wait();
  expect_same(cold, again, GetParam(), false);
  EXPECT_EQ(third->stats().disk_hits, 0u);
  EXPECT_GE(third->stats().disk_corrupt, 1u);
  third.reset();
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Families, Kinds,
                         ::testing::Values("llama", "gemma3_text", "llama4_text", "deepseek_v3", "qwen3_5",
                                           "mamba2", "granitemoehybrid", "qwen3_moe"),
                         [](const auto& family) { return family.param; });
INSTANTIATE_TEST_SUITE_P(Families, Soak, ::testing::ValuesIn(decoders()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace mlxcel
