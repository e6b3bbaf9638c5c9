// The soak over every decoder's tiny model, longer for one family of each kind of state (MLXCEL_SOAK=500: the
// long form); KV modes, and prompts kept on disk across a restart.
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <random>

#include "network.h"
#include "peft_folder.h"
#include "soak.h"

namespace mlxcel {
namespace {

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
    for (const auto& path : adapters()) engine->load_adapter({path, 0.0f});
    return engine;
  }
  /// Adapters of the model: of all its matrices, and of every other one.
  std::vector<std::filesystem::path> adapters() const {
    const NamedArch& entry = arch(GetParam());
    if (folders.empty()) {
      const auto model = build_model(archtest::tiny_config(entry), archtest::tiny_source(entry));
      const auto matrices = archtest::adaptable(entry, *model);
      std::vector<TensorShape> half;
      for (size_t i = 0; i < matrices.size(); i += 2) half.push_back(matrices[i]);
      folders.push_back(std::make_unique<archtest::PeftFolder>(matrices, 1));
      folders.push_back(std::make_unique<archtest::PeftFolder>(half, 2));
    }
    std::vector<std::filesystem::path> paths;
    for (const auto& folder : folders) paths.push_back(folder->path());
    return paths;
  }
  soak::Subject subject() const {
    return {.name = GetParam(),
            .make = [this](EngineOptions options, bool own) { return make(std::move(options), own); },
            .kinds = [](Engine& cold, const soak::Alone& alone,
                        int window) { return soak::branching(cold, alone, window, true); },
            .repeats_itself = GetParam() == "llama",
            .adapters = adapters()};
  }
};

TEST_P(Soak, EveryAnswerIsThatOfTheRequestAloneAndCold) { soak::run(subject(), "fp16", 20); }

/// One family of each kind of state.
class Kinds : public Soak {};

// MLXCEL_SOAK=500: the long form, so many requests over the settings.
TEST_P(Kinds, ManyRequests) { soak::run(subject(), "fp16", soak::asked_for(100) / soak::kSettings); }

// H31: a mode is applied, with its counts said, or refused before the first request.
TEST_P(Kinds, KvModesToo) {
  const auto none = GetParam() == "mamba2";
  const auto latent = GetParam() == "deepseek_v3";
  for (const std::string mode : {"int8", "turbo4", "turbo4-asym", "turbo4-delegated", "turbo3-asym"}) {
    SCOPED_TRACE(mode);
    EngineOptions options;
    options.kv_cache_mode = mode;
    options.kv_boundary_values = 0;
    const bool refused = none || (latent && (mode.ends_with("asym") || mode.ends_with("delegated")));
    try {
      const auto engine = make(options);
      EXPECT_FALSE(refused) << engine->kv_label();
      EXPECT_TRUE(engine->kv_label().starts_with(mode + ": applied to ")) << engine->kv_label();
    } catch (const Error& error) {
      EXPECT_TRUE(refused) << error.what();
      EXPECT_EQ(error.param(), "kv-cache-mode");
    }
    const int requests = soak::asked_for(mode.ends_with("asym") ? 16 : 32);
    if (!refused) soak::run(subject(), mode, std::max(requests / soak::kSettings, 4));
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
  const soak::Answer cold = soak::start(*first, request).wait();
  first.reset();
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  ASSERT_GE(files(), 1);

  auto second = make(options);
  const soak::Answer warm = soak::start(*second, request).wait();
  soak::expect_same(cold, warm, GetParam(), false);
  if (HasFatalFailure()) return;
  EXPECT_GE(warm.finished->timings.cached_tokens, 64);
  EXPECT_EQ(second->stats().disk_hits, 1u);
  EXPECT_EQ(second->stats().pages_free, second->stats().pages_total);
  Request other = request;
  other.cache_scope = "another key";
  EXPECT_EQ(soak::start(*second, other).wait().finished->timings.cached_tokens, 0);
  second.reset();

  // One byte in the middle of every file.
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(file.file_size() / 2));
    bytes.put('!');
    bytes.put('?');
  }
  auto third = make(options);
  const soak::Answer again = soak::start(*third, request).wait();
  soak::expect_same(cold, again, GetParam(), false);
  EXPECT_EQ(third->stats().disk_hits, 0u);
  EXPECT_GE(third->stats().disk_corrupt, 1u);
  third.reset();
  std::filesystem::remove_all(folder);
}

// H30: state that cannot be rewound goes back to before a draft. A drafter that is the target itself is right
// every time, and another one (which sees a window of the text) changes nothing either.
TEST_P(Kinds, H30DraftsOverEveryKindOfState) {
  EngineOptions options;
  options.parallel = 4;
  options.prompt_cache = false;
  const auto plain = make(options);
  options.draft_tokens = 4;
  options.draft_adaptive = false;
  const auto drafting = make(options, true);
  options.prompt_lookup = true;
  options.prompt_lookup_max_batch = 4;
  const auto looking = make(options);
  std::mt19937 rng(30);
  const auto vocab = static_cast<unsigned>(plain->info().vocab_size);
  const int prompts = soak::asked_for(0) > 0 ? 50 : 6;
  const int tokens = std::min(soak::asked_for(0) > 0 ? 200 : 60, plain->context() - 24);
  std::vector<Request> requests;
  for (int i = 0; i < prompts; ++i) {
    Request r;
    for (unsigned n = 5 + rng() % 18; n > 0; --n) r.prompt.push_back(static_cast<TokenId>(rng() % vocab));
    r.max_tokens = tokens;
    r.ignore_eos = true;
    r.sampling.logprobs = 0;
    requests.push_back(std::move(r));
  }
  const auto answers = [&](Engine& engine) {
    std::vector<soak::Running> running;
    for (const Request& r : requests) running.push_back(soak::start(engine, r));
    std::vector<soak::Answer> all;
    for (auto& r : running) all.push_back(r.wait());
    return all;
  };
  const auto want = answers(*plain), drafted = answers(*drafting), looked = answers(*looking);
  for (size_t i = 0; i < want.size(); ++i) {
    soak::expect_same(want[i], drafted[i], fmt::format("{}, drafts, prompt {}", GetParam(), i), false);
    soak::expect_same(want[i], looked[i], fmt::format("{}, lookup, prompt {}", GetParam(), i), false);
    if (HasFatalFailure()) return;
    const Timings& t = drafted[i].finished->timings;
    EXPECT_GT(t.accepted, 0);
    // The last draft may go on behind the answer's end.
    EXPECT_LE(t.drafted - t.accepted, 4) << GetParam() << ", prompt " << i;
  }
}

// H4: the same request twice: the same answer, of at least one evaluated token, whatever the prompt's length
// is beside pages, windows and chunks; and once more with one token behind it.
TEST_P(Kinds, H4TheSameRequestTwice) {
  EngineOptions options;
  options.prefill_chunk = 24;
  const auto engine = make(options);
  options.prompt_cache = false;
  const auto cold = make(options);
  std::mt19937 rng(4);
  const auto vocab = static_cast<unsigned>(engine->info().vocab_size);
  int reused = 0;
  for (const int length : {1, 2, 31, 32, 33, 63, 64, 65, 96, 97, 130}) {
    SCOPED_TRACE(length);
    Request request;
    for (int i = 0; i < length; ++i) request.prompt.push_back(static_cast<TokenId>(rng() % vocab));
    request.max_tokens = 5;
    request.ignore_eos = true;
    request.sampling.logprobs = 0;
    for (const bool longer : {false, true}) {
      if (longer) request.prompt.push_back(1);
      const soak::Answer want = soak::start(*cold, request).wait();
      for (int again = 0; again < 2; ++again) {
        const soak::Answer found = soak::start(*engine, request).wait();
        soak::expect_same(want, found, GetParam(), false);
        if (HasFatalFailure()) return;
        EXPECT_EQ(found.draws.size(), 5u);
        const Timings& t = found.finished->timings;
        EXPECT_LT(t.cached_tokens, t.prompt_tokens);
        reused += t.cached_tokens;
      }
    }
  }
  EXPECT_GT(reused, 600);
}

// A slot's file takes its tokens to another engine over the same model; damaged, cut or another setting's it
// is refused, and the slot stays as it was.
TEST_P(Kinds, SlotsGoToFilesAndBack) {
  namespace fs = std::filesystem;
  const auto folder = fs::temp_directory_path() / fmt::format("mlxcel-slots-{}-{}", GetParam(), ::getpid());
  fs::create_directories(folder);
  const auto file = folder / "one.slot";
  Request request;
  request.prompt.assign(75, 3);
  for (size_t i = 0; i < request.prompt.size(); ++i) request.prompt[i] = static_cast<TokenId>(1 + i * 7 % 50);
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.sampling.logprobs = 0;
  request.slot = 2;
  Request next;  // a turn later
  soak::Answer cold;
  int held = 0;
  {
    const auto engine = make({});
    EXPECT_THROW(engine->save_slot(2, file), Error);  // nothing has run in it
    EXPECT_THROW(engine->save_slot(4, file), Error);  // there are four
    EXPECT_FALSE(fs::exists(file));
    const soak::Answer first = soak::start(*engine, request).wait();
    ASSERT_EQ(first.error, "");
    EXPECT_EQ(first.finished->timings.slot, 2);
    const SlotFile saved = engine->save_slot(2, file);
    held = saved.tokens;
    EXPECT_EQ(held, 75 + 11);
    EXPECT_EQ(saved.bytes, fs::file_size(file));
    EXPECT_THROW(engine->save_slot(1, file), Error);
    EXPECT_EQ(engine->erase_slot(2), held);
    EXPECT_EQ(engine->erase_slot(2), 0);
    EXPECT_THROW(engine->save_slot(2, file), Error);  // what is erased is gone
    next = request;
    for (const Draw& draw : first.draws) next.prompt.push_back(draw.token);
    next.prompt.insert(next.prompt.end(), {4, 9, 2});
    engine->clear_prompt_cache();  // of what was put aside on the way
    cold = soak::start(*engine, next).wait();
    ASSERT_EQ(cold.error, "");
    EXPECT_EQ(cold.finished->timings.cached_tokens, 0);
  }
  const auto reused = [&](Engine& engine) {
    const soak::Answer answer = soak::start(engine, next).wait();
    soak::expect_same(cold, answer, GetParam(), false);
    return answer.finished ? answer.finished->timings.cached_tokens : -1;
  };
  const auto refused = [&](Engine& engine, const fs::path& bad) {
    try {
      engine.restore_slot(0, bad);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::invalid_request && engine.stats().cache_entries == 0;
    }
    return false;
  };
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto engine = make({});
  const auto bad = folder / "bad.slot";
  const auto write = [&](std::string_view text) {
    std::ofstream(bad, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  };
  for (const size_t at : {size_t{0}, size_t{20}, bytes.size() / 2, bytes.size() - 1}) {
    std::string spoilt = bytes;
    spoilt[at] = static_cast<char>(spoilt[at] ^ 0x41);
    write(spoilt);
    EXPECT_TRUE(refused(*engine, bad)) << at;
  }
  for (const size_t length : {size_t{0}, size_t{10}, size_t{60}, bytes.size() - 1}) {
    write(std::string_view(bytes).substr(0, length));
    EXPECT_TRUE(refused(*engine, bad)) << length;
  }
  EXPECT_THROW(engine->restore_slot(0, folder / "none.slot"), Error);
  if (GetParam() != "mamba2") {  // which has no pages to be of another mode
    EngineOptions other;
    other.kv_cache_mode = "int8";
    EXPECT_TRUE(refused(*make(other), file));
  }

  EXPECT_EQ(engine->restore_slot(3, file).tokens, held);
  EXPECT_EQ(reused(*engine), held);
  EXPECT_EQ(engine->erase_slot(3), held);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Families, Kinds,
                         ::testing::Values("llama", "gemma3_text", "llama4_text", "deepseek_v3", "qwen3_5",
                                           "mamba2", "granitemoehybrid", "qwen3_moe"),
                         [](const auto& family) { return family.param; });
INSTANTIATE_TEST_SUITE_P(Families, Soak, ::testing::ValuesIn(decoders()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace mlxcel
