#include "soak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

namespace mlxcel::soak {
namespace {

struct Setting {
  const char* name;
  bool cache, lookup, own_draft;
  size_t pages;
};

constexpr Setting kSettings[] = {{"cache", true, false, false, 14},
                                 {"cache and drafts", true, true, false, 20},
                                 {"drafts", false, true, false, 12},
                                 {"cache, own draft", true, false, true, 20}};

EngineOptions options_of(const Setting& setting, const std::string& kv, int window) {
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
  return options;
}

/// `requests` of these kinds as they come, each compared with its answer.
void storm(Engine& engine, const std::vector<Request>& kinds, const std::vector<Answer>& answers,
           int requests, std::mt19937& rng, const std::string& what) {
  std::vector<Running> running;
  size_t checked = 0;
  const auto settle = [&](size_t keep) {
    for (; running.size() - checked > keep; ++checked) {
      Running& r = running[checked];
      expect_same(answers[r.kind], r.wait(), fmt::format("{}, request {} (kind {})", what, checked, r.kind),
                  r.cancelled);
    }
  };
  for (int i = 0; i < requests && !::testing::Test::HasFatalFailure(); ++i) {
    const size_t kind = rng() % kinds.size();
    Request request = kinds[kind];
    request.priority = static_cast<Priority>(rng() % 3);
    request.key = rng() % 2 == 0 ? "a" : "b";
    const int choices = rng() % 6 == 0 ? 3 : 1;
    if (choices > 1) request.group = rng() | 1u;
    if (rng() % 16 == 0) request.slot = static_cast<int>(rng() % 5);
    for (int c = 0; c < choices; ++c) {
      running.push_back(start(engine, request, kind));
      if (rng() % 7 != 0) continue;
      running.back().cancelled = true;
      running.back().handle.cancel();
    }
    if (rng() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 3000));
    settle(24);
  }
  settle(0);
}

/// What an idle engine with an empty cache still holds; its pages and slots must all be free.
size_t held_when_idle(Engine& engine, bool cache, const std::string& what) {
  engine.clear_prompt_cache();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running, 0) << what;
  EXPECT_EQ(stats.waiting, 0) << what;
  EXPECT_EQ(stats.pages_free, stats.pages_total) << what;
  EXPECT_EQ(stats.cache_bytes, 0u) << what;
  EXPECT_EQ(stats.snapshot_bytes, 0u) << what;
  for (int slot = 0; cache && slot < 5; ++slot) {
    EXPECT_NO_THROW(engine.erase_slot(slot)) << what << ", slot " << slot;
  }
  return stats.memory_active;
}

}  // namespace

Answer Running::wait() {
  Answer answer;
  while (auto event = events->pop_for(std::chrono::seconds(120))) {
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
  answer.error = "no event in 120 s";
  return answer;
}

Running start(Engine& engine, Request request, size_t kind) {
  Running running;
  running.kind = kind;
  running.handle =
      engine.submit(std::move(request), [events = running.events](Event e) { events->push(std::move(e)); });
  return running;
}

void expect_same(const Answer& want, const Answer& found, const std::string& what, bool cancelled) {
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

std::vector<Request> branching(Engine& cold, const Alone& alone, int window, bool adapters) {
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
      for (const Draw& draw : alone(kinds[k - 12]).draws) r.prompt.push_back(draw.token);
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
    if (adapters && k % 3 == 1) r.adapters = {{static_cast<int>(k % 2), 0.8f}};
    if (adapters && k % 6 == 5) r.adapters = {{0, 0.5f}, {1, 1.0f}};
    r.sampling.seed = static_cast<uint32_t>(k);  // drafts that are drawn whole begin with noise
    if (k % 3 == 2) {
      r.sampling.temperature = 0.7f;
      r.sampling.repeat_penalty = 1.1f;
    }
    kinds.push_back(std::move(r));
  }
  return kinds;
}

void run(const Subject& subject, const std::string& kv, int requests) {
  EngineOptions plain;
  plain.kv_cache_mode = kv;
  plain.parallel = 1;
  plain.prompt_cache = false;
  auto cold = subject.make(plain, false);
  const int window = std::min(subject.window, cold->context());
  plain.context = window;  // a text-diffusion draft ends with it
  cold = subject.make(plain, false);
  const auto alone = [&](Request r) {
    r.group = 0;
    return start(*cold, std::move(r)).wait();
  };
  const std::vector<Request> kinds = subject.kinds(*cold, alone, window);
  std::vector<Answer> answers;
  for (const Request& r : kinds) {
    answers.push_back(alone(r));
    ASSERT_EQ(answers.back().error, "");
  }
  // Text diffusion: nothing is drafted; where blocks are masks at first, no prompt is kept.
  const bool diffuses = cold->info().diffusion.block > 0;
  const bool keeps = !diffuses || cold->info().diffusion.redraws;
  cold.reset();

  for (const Setting& setting : kSettings) {
    if (diffuses && (setting.lookup || setting.own_draft)) continue;
    const std::string what = fmt::format("{}, {}, {}", subject.name, kv, setting.name);
    auto engine = subject.make(options_of(setting, kv, window), setting.own_draft);
    std::mt19937 rng(7);
    // Twice: what the first half has left behind, the second must not add to.
    storm(*engine, kinds, answers, requests / 2, rng, what);
    if (::testing::Test::HasFatalFailure()) return;
    const size_t before = held_when_idle(*engine, setting.cache, what);
    storm(*engine, kinds, answers, requests - requests / 2, rng, what);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_LE(held_when_idle(*engine, setting.cache, what), before + (size_t{64} << 10)) << what;
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.failed, 0u) << what;
    // A handful of requests need not meet again.
    const bool many = requests >= 20;
    if (many || !setting.cache || !keeps) {
      EXPECT_EQ(stats.cache_hits > 0, setting.cache && keeps) << what;
    }
    if (!setting.lookup && !setting.own_draft) {
      EXPECT_EQ(stats.drafted, 0u) << what;
    }
    // Random weights need not repeat themselves; those of some do, as long as no code rounds their keys.
    if (setting.lookup && subject.repeats_itself && kv == "fp16" && many) {
      EXPECT_GT(stats.drafted, 0u) << what;
    }
    // Rows without adapters are its drafter's own; greedy ones draw what it drafts.
    if (setting.own_draft && many) {
      EXPECT_GT(stats.accepted, 0u) << what;
    }
    fmt::print(
        "{:<50} {} requests, hits {}, tokens reused {}, evicted {}, put back {}, drafted {}, accepted {}\n",
        what, stats.requests, stats.cache_hits, stats.cache_tokens_reused, stats.cache_evictions,
        stats.preemptions, stats.drafted, stats.accepted);
  }
}

int asked_for(int otherwise) {
  const char* text = std::getenv("MLXCEL_SOAK");
  return text != nullptr && std::atoi(text) > 0 ? std::atoi(text) : otherwise;
}

}  // namespace mlxcel::soak
