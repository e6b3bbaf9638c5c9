#include "soak.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

namespace mlxcel::soak {
namespace {

namespace fs = std::filesystem;

constexpr int kParallel = 5;
constexpr const char* kStruckRoute = "struck";
constexpr const char* kSilent = "no event in 120 s";

struct Setting {
  const char* name;
  bool cache, lookup, own_draft, disk;
  size_t pages;
  const char* fault;  // MLXCEL_FAIL_STEP
};

constexpr Setting kAll[kSettings] = {{"cache", true, false, false, false, 14, "struck:3"},
                                     {"cache and lookup", true, true, false, false, 20, "struck:2:memory"},
                                     {"lookup", false, true, false, false, 12, "struck:1"},
                                     {"cache, own draft", true, false, true, false, 20, "struck:4"},
                                     {"disk", true, false, false, true, 14, "struck:5:memory"}};

EngineOptions options_of(const Setting& setting, const EngineOptions& plain, const fs::path& folder) {
  EngineOptions options = plain;
  options.parallel = kParallel;
  options.prefill_chunk = 24;
  options.step_token_budget = 20;
  options.prompt_cache = setting.cache;
  options.prompt_lookup = setting.lookup;
  options.draft_tokens = setting.lookup || setting.own_draft ? 3 : 0;
  options.draft_adaptive = setting.lookup && !setting.cache;
  options.prompt_lookup_max_batch = options.parallel;
  options.max_kv_tokens = setting.pages * 32;
  options.preemption = setting.cache;
  if (!setting.cache) options.max_batch = 3;
  if (!setting.disk) return options;
  options.prompt_cache_dir = folder / "prompts";
  options.prompt_cache_disk_bytes = size_t{2} << 20;
  options.max_per_key = 3;
  options.prefill_interval = 2;
  return options;
}

/// Requests of these kinds as they come, each compared with its answer.
class Storm {
 public:
  Storm(const Subject& subject, const std::vector<Request>& kinds, const std::vector<Answer>& answers,
        const fs::path& folder, std::string what)
      : subject_(subject),
        kinds_(kinds),
        answers_(answers),
        file_(folder / "one.slot"),
        what_(std::move(what)) {}

  /// Until all have ended; how many of them failed, as they may.
  int blow(Engine& engine, int requests) {
    running_.clear();
    checked_ = 0;
    failed_ = 0;
    for (int i = 0; i < requests && !::testing::Test::HasFatalFailure(); ++i) {
      submit(engine);
      disturb(engine);
      if (rng_() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng_() % 3000));
      settle(24);
    }
    settle(0);
    return failed_;
  }

 private:
  void submit(Engine& engine) {
    const size_t kind = next_kind();
    Request request = kinds_[kind];
    request.priority = static_cast<Priority>(rng_() % 3);
    request.key = rng_() % 2 == 0 ? "a" : "b";
    request.progress = rng_() % 4 == 0;
    request.cache_prompt = rng_() % 8 != 0;
    if (rng_() % 6 == 0) request.history_tokens = static_cast<int>(rng_() % request.prompt.size());
    const int choices = rng_() % 6 == 0 ? 3 : 1;
    if (choices > 1) request.group = rng_() | 1u;
    if (rng_() % 16 == 0) request.slot = static_cast<int>(rng_() % kParallel);
    const std::vector<int> loaded = reload(engine, request);
    for (int c = 0; c < choices; ++c) {
      Request own = request;
      const auto lot = rng_() % 20;
      const Fate fate = lot < 3    ? Fate::cancelled
                        : lot == 3 ? Fate::late
                        : lot == 4 ? Fate::struck
                                   : Fate::whole;
      if (fate == Fate::late) own.deadline = Clock::now() + std::chrono::microseconds(rng_() % 20000);
      if (fate == Fate::struck) own.route = kStruckRoute;
      running_.push_back(start(engine, own, kind));
      running_.back().fate = fate;
      if (lot == 0) running_.back().handle.cancel();  // the others are cancelled when some more have come
      if (lot == 1 || lot == 2) doomed_.push_back(running_.back().handle);
    }
    // Rows keep what they use.
    for (const int id : loaded) engine.unload_adapter(id);
  }

  /// All of them in some order, then in another.
  size_t next_kind() {
    if (left_.empty()) {
      for (size_t kind = 0; kind < kinds_.size(); ++kind) left_.push_back(kind);
      std::shuffle(left_.begin(), left_.end(), rng_);
    }
    const size_t kind = left_.back();
    left_.pop_back();
    return kind;
  }

  /// Sometimes the request's adapters are loaded again, for it alone; their ids.
  std::vector<int> reload(Engine& engine, Request& request) {
    std::vector<int> ids;
    if (!request.adapters || subject_.adapters.empty() || rng_() % 8 != 0) return ids;
    for (AdapterScale& one : *request.adapters) {
      ids.push_back(engine.load_adapter({subject_.adapters.at(static_cast<size_t>(one.id)), 0.0f}));
      one.id = ids.back();
    }
    return ids;
  }

  /// What others do to the engine meanwhile.
  void disturb(Engine& engine) {
    if (!doomed_.empty() && rng_() % 2 == 0) {
      doomed_.front().cancel();
      doomed_.erase(doomed_.begin());
    }
    const int slot = static_cast<int>(rng_() % kParallel);
    try {
      switch (rng_() % 24) {
        case 0:
          engine.set_step_token_budget(kParallel + static_cast<int>(rng_() % 30));
          break;
        case 1:
          engine.clear_prompt_cache(rng_() % 2 == 0);
          break;
        case 2:
          engine.erase_slot(slot);
          break;
        case 3:
          engine.save_slot(slot, file_);
          break;
        case 4:
          if (fs::exists(file_)) engine.restore_slot(slot, file_);
          break;
        default:
          break;
      }
    } catch (const Error& error) {
      // Busy slots, slots that hold nothing (any more), and engines that keep nothing say so.
      EXPECT_NE(error.kind(), ErrorKind::internal) << what_ << ": " << error.what();
      EXPECT_NE(error.kind(), ErrorKind::bad_checkpoint) << what_ << ": " << error.what();
    }
  }

  static bool is_late(const Running& r, const Answer& found) {
    return r.fate == Fate::late && found.error.find("deadline") != std::string::npos;
  }

  /// Waits until at most so many are on their way.
  void settle(size_t keep) {
    for (; running_.size() - checked_ > keep; ++checked_) {
      Running& r = running_[checked_];
      Answer found = r.wait();
      const std::string which = fmt::format("{}, request {} (kind {})", what_, checked_, r.kind);
      const bool failed = !found.error.empty();
      if (failed && found.error != kSilent && (r.fate == Fate::struck || is_late(r, found))) {
        found.error.clear();
        ++failed_;
      }
      expect_same(answers_[r.kind], found, which, failed || r.fate == Fate::cancelled);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  const Subject& subject_;
  const std::vector<Request>& kinds_;
  const std::vector<Answer>& answers_;
  const fs::path file_;
  const std::string what_;
  std::mt19937 rng_{7};
  std::vector<size_t> left_;  // kinds of this round
  std::vector<Running> running_;
  std::vector<Handle> doomed_;
  size_t checked_ = 0;
  int failed_ = 0;
};

/// What an idle engine with an empty cache still holds; its pages and slots must all be free.
size_t held_when_idle(Engine& engine, bool cache, const std::string& what) {
  engine.clear_prompt_cache();
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running, 0) << what;
  EXPECT_EQ(stats.waiting, 0) << what;
  EXPECT_EQ(stats.pages_free, stats.pages_total) << what;
  EXPECT_EQ(stats.cache_bytes, 0u) << what;
  EXPECT_EQ(stats.snapshot_bytes, 0u) << what;
  for (int slot = 0; cache && slot < kParallel; ++slot) {
    EXPECT_NO_THROW(engine.erase_slot(slot)) << what << ", slot " << slot;
  }
  return stats.memory_active;
}

/// A folder that goes with its value.
struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("mlxcel-soak-{}", ::getpid());
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

/// An engine whose requests of one route fail.
std::unique_ptr<Engine> make(const Subject& subject, const Setting& setting, const EngineOptions& options) {
  ::setenv("MLXCEL_FAIL_STEP", setting.fault, 1);
  auto engine = subject.make(options, setting.own_draft);
  ::unsetenv("MLXCEL_FAIL_STEP");
  return engine;
}

/// What the engines' figures must say of a setting.
void check_figures(const Subject& subject, const Setting& setting, const EngineStats& stats, bool keeps,
                   const std::string& kv, int requests, const std::string& what) {
  const bool many = requests >= 20;
  // A handful of requests need not meet again.
  if (requests >= 60 || !setting.cache || !keeps) {
    EXPECT_EQ(stats.cache_hits > 0, setting.cache && keeps) << what;
  }
  if (!setting.lookup && !setting.own_draft) {
    EXPECT_EQ(stats.drafted, 0u) << what;
  }
  // Random weights need not repeat themselves; those of some do, as long as no code rounds their keys.
  // Without a cache drafts are made where they pay, which a busy machine decides.
  if (setting.lookup && setting.cache && subject.repeats_itself && kv == "fp16" && many) {
    EXPECT_GT(stats.drafted, 0u) << what;
  }
  if (setting.own_draft && many) {
    EXPECT_GT(stats.drafted, 0u) << what;
    // Rows without adapters are its drafter's own; greedy ones draw what it drafts.
    if (subject.own_is_right) {
      EXPECT_GT(stats.accepted, 0u) << what;
    }
  }
  fmt::print(
      "{:<50} {} requests, hits {}, tokens reused {}, evicted {}, put back {}, failed {}, shifts {}, "
      "drafted {}, accepted {}, disk {} read {} written\n",
      what, stats.requests, stats.cache_hits, stats.cache_tokens_reused, stats.cache_evictions,
      stats.preemptions, stats.failed, stats.shifts, stats.drafted, stats.accepted, stats.disk_hits,
      stats.disk_writes);
}

}  // namespace

Answer Running::wait() {
  Answer answer;
  while (auto event = events->pop_for(std::chrono::seconds(120))) {
    if (auto* token = std::get_if<Token>(&*event)) answer.draws.push_back(token->draw);
    if (auto* scored = std::get_if<Scored>(&*event))
      answer.scored.insert(answer.scored.end(), scored->tokens.begin(), scored->tokens.end());
    if (auto* finished = std::get_if<Finished>(&*event)) {
      answer.finished = *finished;
      return answer;
    }
    if (auto* failed = std::get_if<Failed>(&*event)) {
      answer.error = failed->error.what();
      return answer;
    }
  }
  answer.error = kSilent;
  return answer;
}

Running start(Engine& engine, Request request, size_t kind) {
  Running running;
  running.kind = kind;
  running.handle =
      engine.submit(std::move(request), [events = running.events](Event e) { events->push(std::move(e)); });
  return running;
}

void expect_same(const Answer& want, const Answer& found, const std::string& what, bool cut) {
  ASSERT_EQ(found.error, "") << what;
  for (const auto& [all, some, name] : {std::tuple{&want.draws, &found.draws, "token"},
                                        std::tuple{&want.scored, &found.scored, "prompt token"}}) {
    if (!cut) {
      ASSERT_EQ(all->size(), some->size()) << what << ", " << name;
    }
    ASSERT_LE(some->size(), all->size()) << what << ", " << name;
    for (size_t i = 0; i < some->size(); ++i) {
      ASSERT_EQ((*all)[i].token, (*some)[i].token) << what << ", " << name << " " << i;
      ASSERT_EQ((*all)[i].logprob, (*some)[i].logprob) << what << ", " << name << " " << i;
    }
  }
  if (cut || !want.finished || !found.finished) return;
  ASSERT_EQ(want.finished->reason, found.finished->reason) << what;
  ASSERT_EQ(want.finished->truncated, found.finished->truncated) << what;
}

std::vector<Request> branching(Engine& cold, const Alone& alone, int window, bool adapters) {
  std::mt19937 rng(11);
  const int vocab = cold.info().vocab_size;
  const bool diffuses = cold.info().diffusion.block > 0;
  const auto any_token = [&] { return static_cast<TokenId>(rng() % static_cast<unsigned>(vocab)); };
  std::vector<std::vector<TokenId>> stems(3);
  for (auto& stem : stems)
    for (size_t i = 0; i < 34 + 30 * static_cast<size_t>(&stem - stems.data()); ++i)
      stem.push_back(any_token());
  const size_t longest = static_cast<size_t>(window) - 8;
  std::vector<Request> kinds;
  for (size_t k = 0; k < 18; ++k) {
    Request r;
    const bool outgrows = !diffuses && (k == 10 || k == 14);
    r.prompt = stems[k % 3];
    if (k >= 12) {
      // A turn later: the prompt, its answer, and something new.
      r.prompt = kinds[k - 12].prompt;
      for (const Draw& draw : alone(kinds[k - 12]).draws) r.prompt.push_back(draw.token);
    } else if (k % 4 == 3) {
      r.prompt.resize(3 + k);
    }
    for (size_t i = rng() % 20; i > 0; --i) r.prompt.push_back(any_token());
    while (outgrows && r.prompt.size() < longest) r.prompt.push_back(any_token());
    if (r.prompt.size() > longest) r.prompt.resize(longest);
    r.max_tokens = 4 + static_cast<int>(rng() % 24);
    if (outgrows) {
      r.max_tokens = 20;
      r.keep_tokens = static_cast<int>(k);
    } else {
      r.max_tokens = std::min(r.max_tokens, window - static_cast<int>(r.prompt.size()));
    }
    r.ignore_eos = true;
    r.sampling.logprobs = 0;
    r.prompt_logprobs = !diffuses && k == 7;
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
  plain.context_shift = true;
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

  for (const Setting& setting : kAll) {
    if (diffuses && (setting.lookup || setting.own_draft)) continue;
    if (subject.only_own_drafts && !setting.own_draft) continue;
    const std::string what = fmt::format("{}, {}, {}", subject.name, kv, setting.name);
    const Folder folder;
    const EngineOptions options = options_of(setting, plain, folder.path);
    auto engine = make(subject, setting, options);
    Storm storm(subject, kinds, answers, folder.path, what);
    // Twice: what the first half has left behind, the second must not add to.
    const int first = storm.blow(*engine, requests / 2);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(engine->stats().failed, static_cast<uint64_t>(first)) << what;
    const size_t before = held_when_idle(*engine, setting.cache, what);
    const uint64_t hits = engine->stats().cache_hits;
    if (setting.disk) {
      engine.reset();
      engine = make(subject, setting, options);
    }
    const int second = storm.blow(*engine, requests - requests / 2);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_LE(held_when_idle(*engine, setting.cache, what), before + (size_t{64} << 10)) << what;
    EngineStats stats = engine->stats();
    EXPECT_EQ(stats.failed, static_cast<uint64_t>(setting.disk ? second : first + second)) << what;
    if (setting.disk) stats.cache_hits += hits;
    check_figures(subject, setting, stats, keeps, kv, requests, what);
  }
}

int asked_for(int otherwise) {
  const char* text = std::getenv("MLXCEL_SOAK");
  return text != nullptr && std::atoi(text) > 0 ? std::atoi(text) : otherwise;
}

}  // namespace mlxcel::soak
