// Engines set up at random, asked at random: whatever it is, it is refused by name, or it is answered right,
// and nothing stays behind. On the fake model, whose answers are a formula. MLXCEL_SOAK: how many engines.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <thread>

#include "engine/loop/engine_fixture.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;
using testing::FakeControl;
using testing::FakeModel;
using testing::Outcome;
using testing::Running;

class RandomTest : public testing::FakeEngineTest {
 protected:
  RandomTest() { fs::create_directories(folder_); }
  ~RandomTest() override { fs::remove_all(folder_); }

  int below(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  bool once_in(int n) { return below(n) == 0; }
  int one_of(std::initializer_list<int> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }

  EngineOptions options() {
    EngineOptions o;
    o.warmup = once_in(3);
    o.warmup_prompt = below(12);
    o.parallel = 1 + below(6);
    o.context = one_of({1, 2, 5, 32, 33, 64, 100, 512});
    o.max_kv_size = once_in(4) ? 1 + below(200) : 0;
    o.context_shift = once_in(3);
    o.max_batch = once_in(3) ? 1 + below(o.parallel) : 0;
    o.prefill_chunk = one_of({0, 1, 7, 32, 2048});
    o.step_token_budget = once_in(2) ? o.parallel + below(40) : 0;
    o.max_token_gap_ms = 1 + below(100);
    o.prefill_interval = 1 + below(3);
    o.max_prefill_rows = 1 + below(4);
    o.max_prefill_tokens = one_of({0, 1, 40, 4096});
    o.max_queue = static_cast<size_t>(one_of({0, 2, 256}));
    o.max_kv_tokens = once_in(2) ? static_cast<size_t>(32 + below(700)) : 0;
    o.kv_budget_bytes = static_cast<size_t>(one_of({0, 0, 0, 1, 100'000}));
    o.memory_limit = once_in(10) ? static_cast<size_t>(1 + below(1 << 30)) : 0;
    o.kv_watermark = once_in(3) ? 0.01 * below(51) : 0.01;
    o.preemption = once_in(2);
    o.prompt_cache = !once_in(4);
    o.prompt_cache_bytes = once_in(3) ? static_cast<size_t>(1 + below(4000)) : 0;
    o.prompt_cache_bounds.entries = static_cast<size_t>(one_of({0, 1, 3, 1024}));
    o.prompt_cache_bounds.pages = static_cast<size_t>(one_of({0, 0, 1, 4}));
    o.prompt_cache_bounds.ttl_s = one_of({0, 3600}) + (once_in(5) ? 1e-4 : 0.0);
    o.prompt_cache_bounds.min_prefix = 1 + below(70);
    o.prompt_cache_bounds.whole_only = once_in(4);
    if (once_in(3)) o.prompt_cache_dir = folder_ / "prompts";
    o.prompt_cache_disk_bytes = static_cast<size_t>(one_of({0, 1, 20'000, 1 << 30}));
    o.max_per_key = static_cast<size_t>(below(3));
    o.keys = static_cast<size_t>(1 + below(3));
    o.prompt_lookup = once_in(3);
    o.prompt_lookup_max_batch = 1 + below(6);
    o.prompt_lookup_gated = once_in(2);
    o.draft_adaptive = once_in(2);
    o.draft_tokens = one_of({0, 1, 3, 16});
    if (!o.prompt_lookup && once_in(3)) {
      o.make_drafter = [control = drafter_] { return std::make_unique<FakeModel>(control, false, 512); };
      if (once_in(2)) o.draft_p_min = 0.01f * static_cast<float>(below(101));
    }
    return o;
  }

  Request any_request(const EngineOptions& o, int window) {
    Request r = request({}, one_of({0, 1, 2, 9, 40, 200}), static_cast<Priority>(below(3)));
    const int length = once_in(3) ? window - 2 + below(5) : 1 + below(std::max(window, 2));
    // Some begin alike.
    r.prompt = prompt(std::max(length, 0), one_of({1, 1, 1, 2, 3 + below(100)}));
    if (once_in(8) && !r.prompt.empty()) r.prompt.back() = FakeModel::kToEos;
    if (once_in(40)) r.prompt.push_back(one_of({-1, FakeModel::kVocab, 1 << 30, -(1 << 30)}));
    if (once_in(8) && !o.context_shift) r.max_tokens = -1;
    if (once_in(40)) r.max_tokens = -2;
    r.keep_tokens = one_of({0, 0, -1, 5, 100'000});
    r.discard_tokens = one_of({0, 0, 1, 100'000});
    r.prompt_logprobs = once_in(8);
    r.progress = once_in(4);
    r.cache_prompt = !once_in(6);
    r.cache_scope = once_in(5) ? "other" : "";
    r.history_tokens = once_in(4) ? below(2 * std::max(length, 1)) : 0;
    r.group = once_in(4) ? 1 + static_cast<uint64_t>(below(2)) : 0;
    r.slot = once_in(8) ? below(o.parallel + 2) - 1 : -1;
    r.key = once_in(2) ? "a" : "b";
    if (once_in(12)) r.deadline = Clock::now() + std::chrono::microseconds(below(4) * 300);
    if (once_in(6)) r.sampling.logprobs = below(4);
    return r;
  }

  /// The answer by the formula; with a window that forgets its oldest tokens, or ends.
  static std::vector<int32_t> right(const Request& r, int window, bool shifts) {
    std::vector<int32_t> tokens = r.prompt, out;
    const size_t full = static_cast<size_t>(window);
    while (r.max_tokens < 0 || static_cast<int>(out.size()) < r.max_tokens) {
      if (tokens.size() >= full) {
        if (!shifts) break;
        if (!out.empty()) {
          const int size = static_cast<int>(tokens.size());
          const int asked = r.keep_tokens < 0 ? static_cast<int>(r.prompt.size()) : r.keep_tokens;
          const int keep = std::clamp(asked, 0, std::max(0, window - 4)), rest = size - keep;
          const int gone = std::clamp(r.discard_tokens > 0 ? r.discard_tokens : rest / 2, 1, rest - 1);
          tokens.erase(tokens.begin() + keep, tokens.begin() + keep + gone);
        }
      }
      const int next = FakeModel::successor(tokens.back(), static_cast<int>(tokens.size()) - 1);
      if (next == FakeModel::kEos) break;
      out.push_back(next);
      tokens.push_back(next);
    }
    return out;
  }

  std::mt19937 rng_{1};
  std::shared_ptr<FakeControl> drafter_ = std::make_shared<FakeControl>();
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("mlxcel-random-{}", ::getpid());
};

TEST_F(RandomTest, WhateverIsAskedIsAnsweredRightOrRefusedByName) {
  const char* const text = std::getenv("MLXCEL_SOAK");
  const int engines = text != nullptr && std::atoi(text) > 0 ? 10 * std::atoi(text) : 120;
  int refused_engines = 0, refused = 0, answered = 0;
  for (int e = 0; e < engines && !HasFatalFailure(); ++e) {
    SCOPED_TRACE(fmt::format("engine {}", e));
    rng_.seed(static_cast<unsigned>(e + 1));
    const EngineOptions o = options();
    std::unique_ptr<Engine> engine;
    try {
      engine = make(o);
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::invalid_request || error.kind() == ErrorKind::out_of_memory)
          << error.what();
      ++refused_engines;
      continue;
    }
    const int window = engine->context();
    struct Asked {
      Request request;
      Running running;
      bool cancelled;
    };
    std::vector<Asked> asked;
    for (int i = 0; i < 14; ++i) {
      Request r = any_request(o, window);
      const bool fits = !r.prompt.empty() && static_cast<int>(r.prompt.size()) <= window;
      try {
        Asked one{r, start(*engine, r), once_in(6)};
        EXPECT_TRUE(fits && r.max_tokens > -2) << r.prompt.size() << " of " << window;
        if (one.cancelled && once_in(2)) one.running.handle.cancel();
        asked.push_back(std::move(one));
      } catch (const Busy&) {
        EXPECT_LT(o.max_queue, 200u);
        ++refused;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_request) << error.what();
        EXPECT_FALSE(error.param().empty()) << error.what();
        ++refused;
      }
      if (once_in(4)) std::this_thread::sleep_for(std::chrono::microseconds(below(1500)));
      if (once_in(10)) engine->clear_prompt_cache(once_in(2));
    }
    for (Asked& one : asked)
      if (one.cancelled) one.running.handle.cancel();
    for (Asked& one : asked) {
      const Outcome outcome = one.running.wait();
      const auto want = right(one.request, window, o.context_shift);
      const bool shorter = one.cancelled || outcome.error;
      if (outcome.error) {
        // Late, or more than its pages will ever hold.
        EXPECT_TRUE((outcome.error->kind() == ErrorKind::cancelled && one.request.deadline) ||
                    outcome.error->kind() == ErrorKind::out_of_memory)
            << outcome.error->what();
      } else {
        ASSERT_TRUE(outcome.finished);
        ++answered;
      }
      ASSERT_LE(outcome.tokens.size(), want.size());
      if (!shorter) {
        ASSERT_EQ(outcome.tokens.size(), want.size());
        EXPECT_EQ(outcome.scored.size(), one.request.prompt_logprobs ? one.request.prompt.size() - 1 : 0u);
      }
      ASSERT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), want.begin()))
          << "prompt of " << one.request.prompt.size() << ", window " << window;
    }
    engine->clear_prompt_cache();
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.pages_free, stats.pages_total);
    EXPECT_EQ(stats.cache_bytes, 0u);
    EXPECT_FALSE(engine->failure()) << *engine->failure();
  }
  EXPECT_GT(answered, engines);
  fmt::print("{} engines, {} refused; {} requests answered, {} refused\n", engines, refused_engines, answered,
             refused);
}

// A row that is cancelled after so many tokens, or whose n-th step fails or finds no memory, whatever it does
// then: a part of its prompt, its first token, a draft.
TEST_F(RandomTest, EveryStepMayBeTheLast) {
  const auto p = prompt(75, 5), q = prompt(70, 6);
  for (const char* drafts : {"none", "lookup", "model"})
    for (const bool cache : {true, false})
      for (int n = 1; n <= 9; ++n)
        for (const char* how : {"cancel", "fail", "memory"}) {
          SCOPED_TRACE(fmt::format("{}, {}, step {}, {}", drafts, cache ? "cache" : "no cache", n, how));
          EngineOptions o{.parallel = 2, .prefill_chunk = 20, .prompt_cache = cache, .warmup = false};
          o.draft_adaptive = false;
          o.prompt_lookup = std::string_view(drafts) == "lookup";
          if (std::string_view(drafts) == "model")
            o.make_drafter = [this] { return std::make_unique<FakeModel>(drafter_, false, 512); };
          const std::string_view kind = how;
          if (kind != "cancel")
            ::setenv("MLXCEL_FAIL_STEP",
                     fmt::format("/bad:{}{}", n, kind == "memory" ? ":memory" : "").c_str(), 1);
          auto engine = make(o);
          ::unsetenv("MLXCEL_FAIL_STEP");
          auto good = start(*engine, request(q, 30));
          Request bad = request(p, 40);
          bad.route = "/bad";
          auto running = start(*engine, bad);
          Outcome outcome;
          if (kind == "cancel") {
            for (int i = 0; i < n - 1 && running.token(outcome); ++i) {
            }
            running.handle.cancel();
          }
          while (running.token(outcome)) {
          }
          const auto want = FakeModel::answer(p, 40);
          ASSERT_LE(outcome.tokens.size(), want.size());
          EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), want.begin()));
          if (kind == "fail") {
            EXPECT_TRUE(outcome.error || outcome.tokens.size() == want.size());
          }
          EXPECT_EQ(good.wait().tokens, FakeModel::answer(q, 30));
          // The same again, and what was begun is of no harm.
          EXPECT_EQ(start(*engine, request(p, 40)).wait().tokens, want);
          engine->clear_prompt_cache();
          EXPECT_EQ(engine->stats().pages_free, engine->stats().pages_total);
          EXPECT_FALSE(engine->failure());
        }
}

// A folder of kept prompts that two engines write and read at once, with rubbish among it.
TEST_F(RandomTest, TwoEnginesOnOneFolderOfPrompts) {
  const fs::path folder = folder_ / "shared";
  fs::create_directories(folder);
  for (int i = 0; i < 5; ++i)
    std::ofstream(folder / fmt::format("{:064x}.prefix", i), std::ios::binary) << std::string(200, 'x');
  std::ofstream(folder / "notes.txt") << "mine";
  const EngineOptions o{.parallel = 2,
                        .prompt_cache_dir = folder,
                        .prompt_cache_disk_bytes = size_t{60} << 10,
                        .warmup = false};
  std::vector<std::thread> users;
  for (int user = 0; user < 2; ++user)
    users.emplace_back([&, user] {
      for (int round = 0; round < 3; ++round) {
        const auto control = std::make_shared<FakeControl>();
        Checkpoint checkpoint;
        checkpoint.eos_ids = {FakeModel::kEos};
        auto engine = Engine::with_model([&] { return std::make_unique<FakeModel>(control); }, nullptr,
                                         nullptr, checkpoint, o);
        for (int i = 0; i < 12; ++i) {
          const auto p = prompt(70 + 32 * (i % 4), i % 5);
          EXPECT_EQ(start(*engine, request(p, 6)).wait().tokens, FakeModel::answer(p, 6))
              << user << ", " << round << ", " << i;
          if (i == 7 && user == 1) engine->clear_prompt_cache(true);
        }
        EXPECT_FALSE(engine->failure());
      }
    });
  for (auto& user : users) user.join();
  EXPECT_TRUE(fs::exists(folder / "notes.txt"));
}

}  // namespace
}  // namespace mlxcel
