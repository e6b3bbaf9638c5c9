// `perplexity`: how well a model predicts a text.
#include "app/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/flags/shared.h"
#include "app/options.h"
#include "app/say.h"
#include "app/terminal.h"

namespace mlxcel::app {
namespace {

constexpr size_t kMostText = size_t{256} << 20;

/// Log-probabilities of tokens 1..n-1 of each window, in order.
std::vector<std::vector<float>> score(Engine& engine, const std::vector<std::vector<TokenId>>& windows) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable ready;
    size_t ended = 0;
    std::vector<std::vector<float>> scores;
    std::optional<Error> error;
  };
  const auto shared = std::make_shared<Shared>();
  shared->scores.resize(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    Request request;
    request.prompt = windows[i];
    request.max_tokens = 0;
    request.prompt_logprobs = true;
    request.cache_prompt = false;
    request.sampling.logprobs = 0;
    request.route = "cli";
    engine.submit(std::move(request), [shared, i](Event event) {
      const std::lock_guard lock(shared->mutex);
      if (const auto* scored = std::get_if<Scored>(&event))
        for (const Draw& draw : scored->tokens) shared->scores[i].push_back(draw.logprob);
      if (const auto* failed = std::get_if<Failed>(&event)) shared->error = failed->error;
      if (std::holds_alternative<Finished>(event) || std::holds_alternative<Failed>(event)) {
        ++shared->ended;
        shared->ready.notify_all();
      }
    });
  }
  std::unique_lock lock(shared->mutex);
  shared->ready.wait(lock, [&] { return shared->ended == windows.size(); });
  if (shared->error) throw *shared->error;
  return shared->scores;
}

class Sum {
 public:
  void add(double logprob) {
    nll_ -= logprob;
    squares_ += logprob * logprob;
    ++count_;
  }
  Perplexity result(int chunks) const {
    Perplexity out;
    out.tokens = count_;
    out.chunks = chunks;
    if (count_ == 0) return out;
    out.nll = nll_ / static_cast<double>(count_);
    out.ppl = std::exp(out.nll);
    const double variance = squares_ / static_cast<double>(count_) - out.nll * out.nll;
    if (count_ > 1 && variance > 0)
      out.error = std::sqrt(variance / static_cast<double>(count_ - 1)) * out.ppl;
    return out;
  }

 private:
  double nll_ = 0, squares_ = 0;
  long long count_ = 0;
};

}  // namespace

Perplexity measure_perplexity(Engine& engine, const std::string& text, const PerplexityOptions& options,
                              const std::function<void(const Perplexity&, int)>& running) {
  const Tokenizer& tokenizer = *engine.tokenizer();
  const bool bos = options.bos && tokenizer.adds_bos() && tokenizer.bos();
  const std::vector<TokenId> tokens = tokenizer.encode(text, options.bos, false);
  const int count = static_cast<int>(tokens.size()), window = options.window;
  const int step = options.stride > 0 ? options.stride : window;
  int chunks = count < window ? 0 : (count - window) / step + 1;
  if (chunks == 0)
    fail(ErrorKind::invalid_request, "the text has {} tokens; a window of {} needs as many (see --ctx-size)",
         count, window);
  if (options.chunks >= 0) chunks = std::min(chunks, options.chunks);

  Sum sum;
  for (int first = 0; first < chunks; first += options.batch) {
    std::vector<std::vector<TokenId>> windows;
    for (int i = first; i < std::min(first + options.batch, chunks); ++i) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i) * step;
      windows.emplace_back(begin, begin + window);
      // Every window starts as a text does; its own first token is only context.
      if (bos && options.stride == 0) windows.back().front() = *tokenizer.bos();
    }
    const auto scores = score(engine, windows);
    for (size_t i = 0; i < scores.size(); ++i) {
      if (scores[i].size() != static_cast<size_t>(window - 1))
        fail(ErrorKind::internal, "{} of {} tokens of a window were scored", scores[i].size(), window - 1);
      // scores[t] belongs to token t + 1 of the window.
      const int from = options.stride > 0 ? std::max(0, window - 1 - options.stride) : window / 2;
      for (int t = from; t < window - 1; ++t) sum.add(scores[i][static_cast<size_t>(t)]);
      if (running) running(sum.result(first + static_cast<int>(i) + 1), chunks);
    }
  }
  return sum.result(chunks);
}

int perplexity_command(int argc, char** argv) {
  FlagState state;
  ModelFlags& model = state.serve.model;
  PerplexityOptions options;
  std::string file;
  bool no_bos = false, json = false;
  model.context = 512;
  CLI::App app("Measure how well a model predicts a text.", "mlxcel perplexity");
  configure(app,
            "  mlxcel perplexity -m SmolLM2-135M-Instruct -f wiki.test.raw\n"
            "  mlxcel perplexity -m ./model -f text.txt -c 2048 --chunks 20 --json\n");
  add_source_flags(app, model, false);
  app.add_option("-f,--file", file, "the text")->type_name("PATH")->group("Text");
  app.add_option("-c,--ctx-size", model.context, "tokens of a window")
      ->type_name("N")
      ->capture_default_str()
      ->group("Text");
  app.add_option("--stride", options.stride,
                 "0: windows side by side, second half scored; N: windows N apart, last N tokens scored")
      ->type_name("N")
      ->capture_default_str()
      ->group("Text");
  app.add_option("--chunks", options.chunks, "at most this many windows; -1: all")
      ->type_name("N")
      ->capture_default_str()
      ->group("Text");
  app.add_flag("--no-bos", no_bos, "do not begin windows with the BOS token")->group("Text");
  app.add_option("-b,--batch", options.batch, "windows at once")
      ->type_name("N")
      ->capture_default_str()
      ->group("Run time");
  SharedFlags shared(app, state);
  shared.add("Run time", {{"--kv-cache-mode"}, {"--threads"}, {"--cpu-precision"}, {"--surgery"}});
  app.add_flag("--json", json, "one object: ppl, stderr, nll, tokens, chunks, ctx, stride, model")
      ->group("Output");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("perplexity: -m, --model is required");
  if (file.empty()) throw UsageError("perplexity: -f, --file is required");
  options.window = model.context;
  options.bos = !no_bos;
  if (options.window < 4 || options.window > 1 << 20)
    throw UsageError(fmt::format("--ctx-size {}: expected 4 to {}", options.window, 1 << 20));
  if (options.stride < 0 || options.stride >= options.window)
    throw UsageError(fmt::format("--stride {}: expected 0 to {}", options.stride, options.window - 1));
  if (options.chunks < -1 || options.chunks == 0)
    throw UsageError(fmt::format("--chunks {}: expected -1 or at least 1", options.chunks));
  if (options.batch < 1 || options.batch > 1024)
    throw UsageError(fmt::format("--batch {}: expected 1 to 1024", options.batch));
  const std::string text = text_file(file, "--file", kMostText);
  EngineOptions engine_flags = engine_options(model);
  checked_reference(model);
  engine_flags.parallel = options.batch;
  engine_flags.max_queue = static_cast<size_t>(options.batch) + 1;
  engine_flags.warmup = false;
  const auto engine = load_engine(model, engine_flags);
  if (engine->info().encoder)
    fail(ErrorKind::unsupported, "{} is an encoder; it predicts no text", engine->info().model_type);
  if (engine->context() < options.window)
    fail(ErrorKind::invalid_request, "--ctx-size {}: the model's window is {}", options.window,
         engine->context());

  const Perplexity p = measure_perplexity(*engine, text, options, [&](const Perplexity& now, int of) {
    say("[{}/{}] {:.4f}\n", now.chunks, of, now.ppl);
  });
  if (json) {
    const nlohmann::ordered_json out = {{"ppl", p.ppl},
                                        {"stderr", p.error},
                                        {"nll", p.nll},
                                        {"tokens", p.tokens},
                                        {"chunks", p.chunks},
                                        {"ctx", options.window},
                                        {"stride", options.stride},
                                        {"model", model.model}};
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("Final estimate: PPL = {:.4f} +/- {:.5f}\n", p.ppl, p.error);
  }
  return 0;
}

}  // namespace mlxcel::app
