// POST /v1/completions: prompts to rows, rows to choices in prompt order; echo and legacy log-probabilities.
#include "api/openai/completion.h"

#include "api/sse.h"
#include "api/utf8.h"
#include "engine/front/prompt.h"
#include "server/answer_form.h"
#include "server/generation.h"
#include "server/infill.h"

namespace mlxcel {
namespace {

using openai::CompletionChoice;
using openai::CompletionRequest;
using openai::LegacyScore;

struct Prepared {
  std::vector<TokenId> tokens;
  std::string text;  // what `echo` shows
  bool double_bos = false;
  bool bos_added = false;  // the first token is not part of the text
};

Prepared prepare(const Engine& engine, const openai::Prompt& prompt, const std::string& path) {
  const Tokenizer& tokenizer = *engine.tokenizer();
  Prepared out;
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    out.tokens = *ids;
    out.text = tokenizer.decode(*ids, /*skip_special=*/false);
    return out;
  }
  out.text = std::get<std::string>(prompt);
  auto encoded = prepare_raw(tokenizer, out.text, {engine.context(), path});
  out.tokens = std::move(encoded.tokens);
  out.double_bos = encoded.double_bos;
  const auto bos = tokenizer.bos();
  if (out.tokens.empty()) {
    // The truly empty prompt: as if at the beginning of a document.
    const auto start = bos ? bos : tokenizer.eos();
    if (!start) fail_param("prompt", "prompt: empty, and this model has no token that begins a text");
    out.tokens.push_back(*start);
    out.bos_added = true;
  } else if (bos && out.tokens.front() == *bos) {
    out.bos_added = !out.text.starts_with(tokenizer.token_text(*bos));
  }
  return out;
}

class CompletionWriter final : public AnswerWriter {
 public:
  CompletionWriter(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Tokenizer> tokenizer,
                   openai::Identity identity, const CompletionRequest& request, std::vector<Prepared> prompts,
                   int ping_seconds)
      : exchange_(std::move(exchange)),
        tokenizer_(std::move(tokenizer)),
        request_(request),
        prompts_(std::move(prompts)),
        ping_seconds_(ping_seconds),
        length_(prompts_.size() * static_cast<size_t>(request.n), 0) {
    answer_.identity = std::move(identity);
    for (size_t i = 0; i < length_.size(); ++i) {
      answer_.choices.push_back({.index = static_cast<int>(i),
                                 .text = "",
                                 .finish_reason = "",
                                 .with_logprobs = request.logprobs >= 0,
                                 .logprobs = {}});
    }
    for (const auto& prompt : prompts_) double_bos_ = double_bos_ || prompt.double_bos;
  }

  void begin() override {
    if (streams()) {
      HttpResponse head;
      head.content_type = "text/event-stream";
      head.headers.emplace_back("Cache-Control", "no-cache");
      add_ignored_fields(head, request_.ignored);
      exchange_->open_stream(std::move(head), ping_seconds_);
    }
    if (!request_.echo) return;
    for (size_t row = 0; row < answer_.choices.size(); ++row) {
      const Prepared& prompt = prompt_of(row);
      answer_.choices[row].text = prompt.text;
      if (scores()) {
        // The first token follows nothing; the others' scores come as they are evaluated.
        add_score(row, {{tokenizer_->token_bytes(prompt.tokens.front()), 0, {}}, false, 0}, prompt.bos_added);
      }
    }
    // A prompt that is to be scored is shown once its scores are there.
    prompt_pending_.assign(answer_.choices.size(), streams());
    for (size_t row = 0; row < answer_.choices.size(); ++row) {
      if (!scores() || prompt_of(row).tokens.size() == 1) show_prompt(row);
    }
  }

  void scored(size_t row, const std::vector<Draw>& prompt_tokens) override {
    if (!request_.echo || !scores()) return;
    for (auto& score : token_scores(*tokenizer_, prompt_tokens))
      add_score(row, {std::move(score), true, 0}, false);
  }

  void timed(size_t, const openai::TimingFigures& figures) override { so_far_ = figures; }

  void text(size_t row, const std::string& piece, const std::vector<Draw>& draws) override {
    show_prompt(row);
    auto& choice = answer_.choices[row];
    if (scores()) {
      for (auto& score : token_scores(*tokenizer_, draws)) add_score(row, {std::move(score), true, 0}, false);
    }
    choice.text += piece;
    if (streams() && (!choice.text.empty() || !choice.logprobs.empty())) flush(row);
  }

  void end(size_t row, const RowFigures& figures) override {
    auto& choice = answer_.choices[row];
    if (!streams()) {
      choice.finish_reason = figures.finish;
      return;
    }
    show_prompt(row);
    choice.finish_reason = figures.finish;
    ++ended_;
    const bool last = ended_ == answer_.choices.size();
    exchange_->write(sse_event(openai::print_completion_chunk(
        answer_.identity, choice, request_.stream.include_usage, last ? &figures.timings : nullptr,
        last ? warnings() : std::string())));
    choice.text.clear();
    choice.logprobs.clear();
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures& totals) override {
    if (streams()) {
      if (request_.stream.include_usage) {
        exchange_->write(sse_event(openai::print_completion_usage_chunk(answer_.identity, usage, totals)));
      }
      exchange_->write(std::string(kSseDone));
      exchange_->close_stream();
      return;
    }
    answer_.usage = usage;
    answer_.timings = totals;
    answer_.warnings_json = warnings();
    HttpResponse out;
    add_ignored_fields(out, request_.ignored);
    out.body = openai::print_completion(answer_);
    exchange_->respond(std::move(out));
  }

 private:
  bool streams() const { return request_.stream.stream; }
  bool scores() const { return request_.logprobs >= 0; }
  const Prepared& prompt_of(size_t row) const { return prompts_[row / static_cast<size_t>(request_.n)]; }
  std::string warnings() const {
    if (!double_bos_) return "";
    return openai::print_warning("double_bos", "a prompt began with two BOS; one was dropped");
  }

  void add_score(size_t row, LegacyScore score, bool outside_text) {
    score.offset = length_[row];
    if (!outside_text) length_[row] += utf8_length(score.score.bytes);
    answer_.choices[row].logprobs.push_back(std::move(score));
  }

  /// The echoed prompt is the first chunk of its choice.
  void show_prompt(size_t row) {
    if (prompt_pending_.empty() || !prompt_pending_[row]) return;
    prompt_pending_[row] = false;
    flush(row);
  }

  void flush(size_t row) {
    auto& choice = answer_.choices[row];
    exchange_->write(sse_event(openai::print_completion_chunk(
        answer_.identity, choice, request_.stream.include_usage, so_far_ ? &*so_far_ : nullptr)));
    choice.text.clear();
    choice.logprobs.clear();
  }

  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  const CompletionRequest request_;
  const std::vector<Prepared> prompts_;
  const int ping_seconds_;
  std::vector<size_t> length_;  // characters of each choice so far
  openai::CompletionAnswer answer_;
  std::optional<openai::TimingFigures> so_far_;
  std::vector<bool> prompt_pending_;
  size_t ended_ = 0;
  bool double_bos_ = false;
};

void completions(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const HttpRequest& http = exchange->request();
  check_wishes(http);
  const auto engine = service.generator();
  const CompletionRequest request = openai::parse_completion(http.body, service.bounds(*engine));

  Request row;
  row.sampling = service.sampling(request.sampling);
  row.sampling.logprobs = request.logprobs;
  row.max_tokens = request.max_tokens;
  row.ignore_eos = request.sampling.ignore_eos.value_or(service.options().sampling.ignore_eos);
  row.prompt_logprobs = request.echo && request.logprobs >= 0;
  row.route = http.route;
  row.grammar = form_grammar(*engine, form_or_default(service.options(), request.form));
  wishes_of(service, http, request.sampling, row);

  Generation::Plan plan;
  plan.stops = service.stops(request.sampling);
  plan.timed = request.timings_per_token && request.stream.stream;
  std::vector<Prepared> prompts;
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    prompts.push_back(prepare(*engine, request.prompts[p], request.prompt_paths[p]));
    if (request.suffix) {
      if (!can_infill(*engine->tokenizer()))
        fail_param("suffix", "suffix: this model's vocabulary has no fill-in-the-middle tokens");
      if (row.prompt_logprobs) fail_param("suffix", "suffix: not together with echo and logprobs");
      prompts.back().tokens = infill_tokens(*engine->tokenizer(), prompts.back().text, *request.suffix,
                                            service.options().suffix_first);
    }
    Request one = row;
    one.prompt = prompts.back().tokens;
    fit_window(one, engine->context(), request.prompt_paths[p]);
    plan.prompt_tokens += static_cast<int>(one.prompt.size());
    if (request.n > 1) one.group = next_group();
    for (int i = 0; i < request.n; ++i) {
      plan.rows.push_back(one);
      plan.rows.back().choice = i;
    }
  }
  plan.writer = std::make_unique<CompletionWriter>(
      exchange, engine->tokenizer(), service.identity("cmpl-"), request, std::move(prompts),
      request.ping_interval.value_or(service.options().ping_seconds));
  Generation::start(router, engine, exchange, std::move(plan));
}

}  // namespace

void add_completion_routes(Router& router) {
  router.add("POST", "/v1/completions", [&router](const auto& exchange) { completions(router, exchange); });
}

}  // namespace mlxcel
