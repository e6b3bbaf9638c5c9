// `bench`: prompt and generation speed, as llama-bench tabulates them.
#include <fmt/format.h>
#include <mlx/memory.h>
#include <mlx/version.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/bench_kernels.h"
#include "app/bench_masks.h"
#include "app/command_words.h"
#include "app/commands.h"
#include "app/flags/shared.h"
#include "app/options.h"
#include "app/say.h"
#include "app/terminal.h"

namespace mlxcel::app {
namespace {

struct Test {
  int prompt = 0, generated = 0, batch = 1;
  int depth = 0;  // tokens already there
  std::string name() const {
    std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generated);
    if (prompt > 0 && generated > 0) text += fmt::format("+tg{}", generated);
    return depth > 0 ? text + fmt::format(" @ d{}", depth) : text;
  }
};

struct Result {
  Test test;
  std::vector<double> samples_ns, samples_ts;
  uint64_t drafted = 0, accepted = 0, rounds = 0;  // over all samples
};

/// What is the same for all tests of one engine.
struct Subject {
  std::string name, kv_cache_mode;
  size_t bytes = 0;
  long long parameters = 0;
  int prefill_chunk = 0;
  size_t peak = 0;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

/// Submits `batch` equal requests at once and waits for all; returns the nanoseconds that count: for a
/// prompt test the whole time, for a generation test from the last first token to the end.
double run_once(Engine& engine, const Test& test, int prompt) {
  static long long salt = 0;  // no prompt begins like an earlier one: nothing comes from a cache
  const int vocab = engine.info().vocab_size;
  struct Shared {
    std::mutex mutex;
    std::condition_variable ready;
    int finished = 0, started = 0;
    std::chrono::steady_clock::time_point all_started, all_finished;
    std::optional<Error> error;
  };
  const auto shared = std::make_shared<Shared>();
  const auto begun = std::chrono::steady_clock::now();
  ++salt;
  for (int row = 0; row < test.batch; ++row) {
    Request request;
    const int length = std::max(1, prompt);
    for (int i = 0; i < length; ++i)  // any tokens do: speed does not depend on them
      request.prompt.push_back(
          static_cast<TokenId>((1000003LL * (row + 1) + 31337LL * salt + 7919LL * i) % vocab));
    request.max_tokens = test.generated > 0 ? test.generated + (test.prompt > 0 ? 0 : 1) : 0;
    request.ignore_eos = true;
    request.cache_prompt = false;
    request.sampling.seed = 1;
    engine.submit(std::move(request), [shared, batch = test.batch, first = true](Event event) mutable {
      const std::lock_guard lock(shared->mutex);
      const auto now = std::chrono::steady_clock::now();
      if (std::holds_alternative<Token>(event) && first) {
        first = false;
        if (++shared->started == batch) shared->all_started = now;
      }
      if (auto* failed = std::get_if<Failed>(&event)) shared->error = failed->error;
      if (std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event))
        if (++shared->finished == batch) {
          shared->all_finished = now;
          shared->ready.notify_all();
        }
    });
  }
  std::unique_lock lock(shared->mutex);
  shared->ready.wait(lock, [&] { return shared->finished == test.batch; });
  if (shared->error) throw *shared->error;
  const auto from = test.prompt > 0 ? begun : shared->all_started;
  return std::chrono::duration<double, std::nano>(shared->all_finished - from).count();
}

/// One sample. What lies in front of a prompt test (its depth) is measured by itself and taken off.
double sample(Engine& engine, const Test& test) {
  if (test.depth == 0) return run_once(engine, test, test.prompt);
  if (test.prompt == 0) return run_once(engine, test, test.depth);
  const Test before{test.depth, 0, test.batch, 0};
  return std::max(1.0,
                  run_once(engine, test, test.depth + test.prompt) - run_once(engine, before, test.depth));
}

std::vector<int> positive(const std::vector<int>& values, const char* flag, int low) {
  for (const int value : values)
    if (value < low || value > 1 << 20)
      throw UsageError(fmt::format("{} {}: expected {} to {}", as_typed(flag), value, low, 1 << 20));
  return values;
}

std::string iso_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

void print_rows(const Subject& subject, const std::vector<Result>& results, const std::string& format,
                nlohmann::ordered_json& all) {
  for (const Result& r : results) {
    if (format == "md") {
      fmt::print("| {} | {} | {:.2f} M | {} | {} | {} | {} | {:.2f} ± {:.2f} |\n", subject.name,
                 human_bytes(subject.bytes), static_cast<double>(subject.parameters) / 1e6, device_label(),
                 r.test.batch, subject.kv_cache_mode, r.test.name(), mean(r.samples_ts),
                 deviation(r.samples_ts));
      continue;
    }
    if (format == "csv") {
      fmt::print("\"{}\",{},{},{},{},{},{},{:.0f},{:.0f},{:.3f},{:.3f}\n", subject.name,
                 subject.kv_cache_mode, subject.prefill_chunk, r.test.batch, r.test.prompt, r.test.generated,
                 r.test.depth, mean(r.samples_ns), deviation(r.samples_ns), mean(r.samples_ts),
                 deviation(r.samples_ts));
      continue;
    }
    nlohmann::ordered_json row = {
        {"build", MLXCEL_VERSION},
        {"mlx_version", fmt::format("{}.{}.{}", MLX_VERSION_MAJOR, MLX_VERSION_MINOR, MLX_VERSION_PATCH)},
        {"device", device_label()},
        {"backend", MLXCEL_BACKEND_NAME},
        {"model", subject.name},
        {"model_size", subject.bytes},
        {"model_n_params", subject.parameters},
        {"kv_cache_mode", subject.kv_cache_mode},
        {"prefill_chunk_size", subject.prefill_chunk},
        {"batch", r.test.batch},
        {"n_prompt", r.test.prompt},
        {"n_gen", r.test.generated},
        {"n_depth", r.test.depth},
        {"test_time", iso_time()},
        {"avg_ns", mean(r.samples_ns)},
        {"stddev_ns", deviation(r.samples_ns)},
        {"avg_ts", mean(r.samples_ts)},
        {"stddev_ts", deviation(r.samples_ts)},
        {"samples_ns", r.samples_ns},
        {"samples_ts", r.samples_ts},
        {"peak_bytes", subject.peak}};
    if (r.rounds > 0) {
      row["draft_rounds"] = r.rounds;
      row["draft_n"] = r.drafted;
      row["draft_n_accepted"] = r.accepted;
      row["acceptance_rate"] = static_cast<double>(r.accepted) / static_cast<double>(r.drafted);
    }
    if (format == "jsonl") fmt::print("{}\n", row.dump());
    all.push_back(row);
  }
  std::fflush(stdout);
}

/// One model with one KV mode and one chunk size: loads, runs every test, prints.
void run_engine(const ServeFlags& flags, const std::vector<Test>& tests, int repetitions, double delay,
                const std::string& format, nlohmann::ordered_json& all) {
  const ModelFlags& model = flags.model;
  EngineOptions options = engine_options(flags);
  int most = 1, window = 0;
  for (const Test& test : tests) {
    most = std::max(most, test.batch);
    window = std::max(window, test.depth + test.prompt + test.generated + 2);
  }
  options.draft_policy = false;  // what is asked for is measured
  options.parallel = most;
  options.max_queue = static_cast<size_t>(most) + 1;
  if (options.context == 0) options.context = window;
  const auto engine = load_engine(model, options);
  const ModelInfo& info = engine->info();
  if (info.encoder)
    fail(ErrorKind::unsupported, "{} is an encoder; bench measures text generation", info.model_type);
  std::vector<Result> results;
  const bool live = stderr_is_terminal() && !model.quiet;
  for (const Test& test : tests) {
    Result result{test, {}, {}};
    sample(*engine, test);
    const EngineStats before = engine->stats();
    for (int i = 0; i < repetitions; ++i) {
      if (delay > 0) std::this_thread::sleep_for(std::chrono::duration<double>(delay));
      const double ns = sample(*engine, test);
      result.samples_ns.push_back(ns);
      result.samples_ts.push_back(static_cast<double>(test.prompt + test.generated) * test.batch * 1e9 / ns);
      if (live)
        say("\r\033[K{} b{}: {:.1f} t/s ({}/{})", test.name(), test.batch, result.samples_ts.back(), i + 1,
            repetitions);
    }
    if (live) say("\r\033[K");
    const EngineStats after = engine->stats();
    result.drafted = after.drafted - before.drafted;
    result.accepted = after.accepted - before.accepted;
    result.rounds = after.draft_rounds - before.draft_rounds;
    results.push_back(std::move(result));
  }
  print_rows({fmt::format("{} {}", info.family, info.weights_label), model.kv_cache_mode, info.weight_bytes,
              info.parameters, model.prefill_chunk, mx::get_peak_memory()},
             results, format, all);
}

/// Tokens, from 1 to 2^20; 0 for what is no such number.
int length_of(const std::string& text) {
  int tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && tokens >= 1 && tokens <= 1 << 20 ? tokens : 0;
}

/// "a,b": several models; a path with a comma in its name is one.
std::vector<std::string> models_of(const std::string& list) {
  std::error_code error;
  if (std::filesystem::exists(list, error)) return {list};
  std::vector<std::string> out;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');)
    if (!item.empty()) out.push_back(item);
  return out;
}

}  // namespace

int bench_command(int argc, char** argv) {
  FlagState state;
  ModelFlags& model = state.serve.model;
  std::vector<int> prompts{512}, generated{128}, batches{1}, depths{0}, chunks{2048};
  std::vector<std::string> pairs, modes{"fp16"};
  int repetitions = 5;
  double delay = 0;
  std::string format = "md";
  std::string kernels;
  CLI::App app("Measure prompt and generation speed.", "mlxcel bench");
  configure(app,
            "  mlxcel bench -m SmolLM2-135M-Instruct -p 512 -n 128\n"
            "  mlxcel bench -m model.gguf -n 64 -b 1,8,16 -o json\n"
            "  mlxcel bench -m ./a,./b -p 0 -n 128 -d 0,2048,8192\n"
            "  mlxcel bench -m SmolLM2-135M-Instruct --masks\n"
            "  mlxcel bench --kernels\n");
  add_source_flags(app, model, false);
  const auto list = [&](const char* names, auto& values, const char* about) {
    app.add_option(names, values, about)->delimiter(',')->take_all()->capture_default_str()->group("Tests");
  };
  list("-p,--n-prompt", prompts, "prompt lengths; 0: none");
  list("-n,--n-gen", generated, "generated lengths; 0: none");
  app.add_option("--pg", pairs, "PROMPT,GENERATED measured together; repeatable (also -pg)")
      ->type_name("PP,TG")
      ->group("Tests")
      ->take_all();
  list("-b,--batch", batches, "sequences at once");
  list("-d,--n-depth", depths, "tokens already in the cache");
  list("--kv-cache-mode", modes, "how keys and values are kept");
  list("--prefill-chunk-size", chunks, "prompt tokens per pass; 0: one pass");
  app.add_option("-r,--repetitions", repetitions, "repetitions of each test")
      ->group("Tests")
      ->capture_default_str();
  const auto* kernels_asked = app.add_option("--kernels", kernels,
                                             "measure the packed products alone, beside a read loop and the "
                                             "units' peak; FILTER: part of a name")
                                  ->type_name("FILTER")
                                  ->expected(0, 1)
                                  ->group("Tests");
  bool masks = false;
  app.add_flag("--masks", masks, "measure what constrained answers cost a token, the vocabulary alone")
      ->group("Tests");
  app.add_option("--delay", delay, "seconds of rest before each repetition")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 3600.0))
      ->group("Tests");
  app.add_option("-o,--output", format, "how the table is printed")
      ->check(CLI::IsMember({"md", "json", "jsonl", "csv"}))
      ->group("Output")
      ->capture_default_str();
  app.add_option("-c,--ctx-size", model.context, "window; 0: what the tests need")
      ->type_name("N")
      ->group("Run time");
  SharedFlags shared(app, state);
  shared.add(
      "Run time",
      {{"--threads"}, {"--cpu-precision"}, {"--no-warmup", "leave out the warm-up pass", "!--no-warmup"}});
  shared.add("Drafting",
             {{"--draft-model", nullptr, "-md,--draft-model"}, {"--draft-kind"}, {"--draft-max"}});
  app.add_flag("--quiet", model.quiet, "no progress")->group("Output");
  parse(app, argc, argv);
  if (repetitions < 1 || repetitions > 1000)
    throw UsageError(fmt::format("{} {}: expected 1 to 1000", as_typed("--repetitions"), repetitions));
  if (kernels_asked->count() > 0) {
    if (!model.model.empty()) throw UsageError("bench: --kernels measures no model; leave out -m");
    engine_options(model);  // threads
    return bench_kernels(repetitions, kernels, format);
  }
  if (model.model.empty()) throw UsageError("bench: -m, --model is required");
  if (masks) {
    engine_options(model);
    return bench_masks(model, repetitions, format);
  }

  std::vector<Test> tests;
  for (const int batch : positive(batches, "--batch", 1))
    for (const int depth : positive(depths, "--n-depth", 0)) {
      for (const int n : positive(prompts, "--n-prompt", 0))
        if (n > 0) tests.push_back({n, 0, batch, depth});
      for (const int n : positive(generated, "--n-gen", 0))
        if (n > 0) tests.push_back({0, n, batch, depth});
      for (const std::string& pair : pairs) {
        const auto comma = std::min(pair.find(','), pair.size());
        const int prompt = length_of(pair.substr(0, comma));
        const int answer = comma < pair.size() ? length_of(pair.substr(comma + 1)) : 0;
        if (prompt == 0 || answer == 0)
          throw UsageError(
              fmt::format("{} {}: expected two lengths, for example 512,128", as_typed("--pg"), pair));
        tests.push_back({prompt, answer, batch, depth});
      }
    }
  if (tests.empty()) throw UsageError("bench: nothing to measure; give -p, -n or -pg");
  settle_engine_flags(state);
  std::vector<ServeFlags> runs;
  for (const std::string& name : models_of(model.model))
    for (const std::string& mode : modes)
      for (const int chunk : positive(chunks, "--prefill-chunk-size", 0)) {
        ServeFlags run = state.serve;
        run.model.model = name;
        const Flag& row = *find_flag("--kv-cache-mode");
        FlagState checked;
        row.apply(checked, row, mode);
        run.model.kv_cache_mode = checked.serve.model.kv_cache_mode;
        run.model.prefill_chunk = chunk;
        engine_options(run.model);
        checked_reference(run.model);
        runs.push_back(std::move(run));
      }

  if (format == "md")
    fmt::print(
        "| model | size | params | backend | batch | kv | test | t/s |\n"
        "| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |\n");
  if (format == "csv")
    fmt::print(
        "model,kv_cache_mode,prefill_chunk_size,batch,n_prompt,n_gen,n_depth,avg_ns,stddev_ns,avg_ts,stddev_"
        "ts\n");
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ServeFlags& run : runs) run_engine(run, tests, repetitions, delay, format, all);
  if (format == "json") fmt::print("{}\n", all.dump(2));
  return 0;
}

}  // namespace mlxcel::app
