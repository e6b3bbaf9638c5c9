// `bench`: prompt and generation speed, as llama-bench tabulates them.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"
#include "app/terminal.h"
#include "base/memory.h"

namespace mlxcel::app {
namespace {

struct Test {
  int prompt = 0, generated = 0, batch = 1;
  std::string name() const {
    if (prompt > 0 && generated > 0) return fmt::format("pp{}+tg{}", prompt, generated);
    return prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generated);
  }
};

struct Result {
  Test test;
  std::vector<double> samples_ns, samples_ts;
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
double run_once(Engine& engine, const Test& test) {
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
  for (int row = 0; row < test.batch; ++row) {
    Request request;
    const int length = std::max(1, test.prompt);
    for (int i = 0; i < length; ++i)  // any tokens do: speed does not depend on them
      request.prompt.push_back(static_cast<TokenId>((1000003LL * (row + 1) + 7919LL * i) % vocab));
    request.max_tokens = test.generated > 0 ? test.generated + (test.prompt > 0 ? 0 : 1) : 0;
    request.ignore_eos = true;
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

std::vector<int> positive(const std::vector<int>& values, const char* flag, int low) {
  for (const int value : values)
    if (value < low || value > 1 << 20)
      throw UsageError(fmt::format("{} {}: expected {} to {}", flag, value, low, 1 << 20));
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

}  // namespace

int bench_command(int argc, char** argv) {
  ModelFlags model;
  std::vector<int> prompts{512}, generated{128}, batches{1};
  std::vector<std::string> pairs;
  int repetitions = 5;
  std::string format = "md";
  CLI::App app("Measure prompt and generation speed.", "mlxcel bench");
  configure(app,
            "  mlxcel bench -m SmolLM2-135M-Instruct -p 512 -n 128\n  mlxcel bench -m model.gguf -n 64 -b "
            "1,8,16 -o json\n");
  add_source_flags(app, model, false);
  app.add_option("-p,--n-prompt", prompts, "prompt lengths; 0: none")
      ->delimiter(',')
      ->group("Tests")
      ->capture_default_str();
  app.add_option("-n,--n-gen", generated, "generated lengths; 0: none")
      ->delimiter(',')
      ->group("Tests")
      ->capture_default_str();
  app.add_option("--pg", pairs, "PROMPT,GENERATED measured together; repeatable")
      ->type_name("PP,TG")
      ->group("Tests")
      ->take_all();
  app.add_option("-b,--batch", batches, "sequences at once")
      ->delimiter(',')
      ->group("Tests")
      ->capture_default_str();
  app.add_option("-r,--repetitions", repetitions, "repetitions of each test")
      ->group("Tests")
      ->capture_default_str();
  app.add_option("-o,--output", format, "md, json, jsonl or csv")
      ->check(CLI::IsMember({"md", "json", "jsonl", "csv"}))
      ->group("Output")
      ->capture_default_str();
  add_runtime_flags(app, model);
  for (auto* option : {app.get_option("--n-prompt"), app.get_option("--n-gen"), app.get_option("--batch")})
    option->take_all();
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("bench: -m, --model is required");
  if (repetitions < 1 || repetitions > 1000)
    throw UsageError(fmt::format("--repetitions {}: expected 1 to 1000", repetitions));

  std::vector<Test> tests;
  int most = 0, window = 0;
  for (const int batch : positive(batches, "--batch", 1)) {
    most = std::max(most, batch);
    for (const int n : positive(prompts, "--n-prompt", 0))
      if (n > 0) tests.push_back({n, 0, batch});
    for (const int n : positive(generated, "--n-gen", 0))
      if (n > 0) tests.push_back({0, n, batch});
    for (const std::string& pair : pairs) {
      Test test{0, 0, batch};
      char extra = 0;
      if (std::sscanf(pair.c_str(), "%d,%d%c", &test.prompt, &test.generated, &extra) != 2 ||
          test.prompt < 1 || test.generated < 1)
        throw UsageError(fmt::format("--pg {}: expected two lengths, for example 512,128", pair));
      tests.push_back(test);
    }
  }
  for (const Test& test : tests) window = std::max(window, test.prompt + test.generated + 2);

  EngineOptions options = engine_options(model);
  options.parallel = most;
  options.max_queue = static_cast<size_t>(most) + 1;
  if (options.context == 0) options.context = window;
  const auto engine = load_engine(model, options);
  const ModelInfo& info = engine->info();
  if (info.encoder)
    fail(ErrorKind::unsupported, "{} is an encoder; bench measures text generation", info.model_type);

  std::vector<Result> results;
  for (const Test& test : tests) {
    Result result{test, {}, {}};
    run_once(*engine, test);
    for (int i = 0; i < repetitions; ++i) {
      const double ns = run_once(*engine, test);
      const double tokens = static_cast<double>(test.prompt + test.generated) * test.batch;
      result.samples_ns.push_back(ns);
      result.samples_ts.push_back(tokens * 1e9 / ns);
      if (stderr_is_terminal() && !model.quiet)
        fmt::print(stderr, "\r\033[K{} b{}: {:.1f} t/s ({}/{})", test.name(), test.batch,
                   result.samples_ts.back(), i + 1, repetitions);
    }
    if (stderr_is_terminal() && !model.quiet) fmt::print(stderr, "\r\033[K");
    results.push_back(std::move(result));
  }

  const std::string name = fmt::format("{} {}", info.family, info.weights_label);
  if (format == "md") {
    fmt::print(
        "| model | size | params | backend | batch | kv | test | t/s |\n| --- | ---: | ---: | --- | ---: | "
        "--- | ---: | ---: |\n");
    for (const Result& r : results)
      fmt::print("| {} | {} | {:.2f} M | {} | {} | {} | {} | {:.2f} ± {:.2f} |\n", name,
                 human_bytes(info.weight_bytes), static_cast<double>(info.parameters) / 1e6, device_label(),
                 r.test.batch, model.kv_cache_mode, r.test.name(), mean(r.samples_ts),
                 deviation(r.samples_ts));
    return 0;
  }
  if (format == "csv") fmt::print("model,batch,n_prompt,n_gen,avg_ns,stddev_ns,avg_ts,stddev_ts\n");
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Result& r : results) {
    if (format == "csv") {
      fmt::print("\"{}\",{},{},{},{:.0f},{:.0f},{:.3f},{:.3f}\n", name, r.test.batch, r.test.prompt,
                 r.test.generated, mean(r.samples_ns), deviation(r.samples_ns), mean(r.samples_ts),
                 deviation(r.samples_ts));
      continue;
    }
    const nlohmann::ordered_json row = {{"build", MLXCEL_VERSION},
                                        {"mlx_version", version_line()},
                                        {"device", device_label()},
                                        {"backend", MLXCEL_BACKEND_NAME},
                                        {"model", name},
                                        {"model_size", info.weight_bytes},
                                        {"model_n_params", info.parameters},
                                        {"kv_cache_mode", model.kv_cache_mode},
                                        {"batch", r.test.batch},
                                        {"n_prompt", r.test.prompt},
                                        {"n_gen", r.test.generated},
                                        {"n_depth", 0},
                                        {"test_time", iso_time()},
                                        {"avg_ns", mean(r.samples_ns)},
                                        {"stddev_ns", deviation(r.samples_ns)},
                                        {"avg_ts", mean(r.samples_ts)},
                                        {"stddev_ts", deviation(r.samples_ts)},
                                        {"samples_ns", r.samples_ns},
                                        {"samples_ts", r.samples_ts},
                                        {"peak_bytes", process_memory().peak}};
    if (format == "jsonl") fmt::print("{}\n", row.dump());
    all.push_back(row);
  }
  if (format == "json") fmt::print("{}\n", all.dump(2));
  return 0;
}

}  // namespace mlxcel::app
