#include "server/generation.h"

#include <algorithm>
#include <atomic>

#include "api/sse.h"
#include "base/log.h"

namespace mlxcel {

struct Generation::Row {
  explicit Row(TextStream stream) : text(std::move(stream)) {}
  TextStream text;
  Handle handle;
  bool submitted = false, ended = false;
  Timings timings;  // of the last token
  Request request;  // may_force: what was asked, and the tokens since
  std::vector<TokenId> tokens;
  int epoch = 0;                 // counts redirections; events of an older one are void
  double earlier_ms = 0;         // decoding before the last redirection
  std::optional<Timings> asked;  // of the prompt that the client sent, once the row has been redirected
  int slot = -1;
  uint64_t task = 0;  // its number on the board of slots
  SlotState shown;    // what /slots says of it
  uint32_t seed = 0;
  int generated = 0;
  TimePoint first{}, last{};
  RowFigures figures;
};

Generation::~Generation() {
  for (size_t i = 0; i < rows_.size(); ++i) leave_slot(i);
}

namespace {

void set_prompt(const Timings& from, openai::TimingFigures& to) {
  to.cache_n = from.cached_tokens;
  to.prompt_n = from.prompt_tokens - from.cached_tokens;
  to.prompt_ms = from.prompt_ms;
}

void add_drafts(const Timings& from, const std::string& kind, openai::TimingFigures& to) {
  to.draft_n = from.drafted;
  to.draft_n_accepted = from.accepted;
  to.draft_rounds = from.draft_rounds;
  to.draft_kind = kind;
}

}  // namespace

namespace {

/// What the request asks, and the settings where it asks nothing.
Denoising denoising_of(const Service& service, const Denoising& asked) {
  const auto live = service.live();
  const auto engine = live->denoising.any() ? service.engine() : nullptr;
  return engine && engine->info().diffusion.block > 0 ? asked.or_as(live->denoising) : asked;
}

}  // namespace

void wishes_of(const Service& service, const HttpRequest& http, const openai::SamplingFields& fields,
               Request& row) {
  row.cache_prompt = fields.cache_prompt && service.options().prompt_cache;
  row.cache_scope = fields.cache_key;
  if (fields.adapters) {
    row.adapters.emplace();
    for (const auto& [id, scale] : *fields.adapters) row.adapters->push_back({id, scale});
  }
  if (fields.slot && *fields.slot >= service.options().parallel)
    fail_param("id_slot", "id_slot: expected -1 to {}, found {}", service.options().parallel - 1,
               *fields.slot);
  row.slot = fields.slot.value_or(-1);
  row.keep_tokens = fields.keep.value_or(service.options().keep);
  row.discard_tokens = fields.discard.value_or(0);
  row.denoising = denoising_of(service, fields.denoising);
  row.key = http.key_label;
  const auto priority = http.header("x-priority");
  row.priority = priority == "high" ? Priority::high : priority == "low" ? Priority::low : Priority::normal;
  const LoopDetection usual = service.live()->loops;
  row.loops.max_pattern = fields.max_pattern.value_or(usual.max_pattern);
  row.loops.min_pattern = std::max(1, fields.min_pattern.value_or(usual.min_pattern));
  row.loops.min_count = fields.min_count.value_or(usual.min_count);
  row.loops.given = fields.max_pattern.has_value();
}

uint64_t next_group() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void fit_window(Request& request, int context, const std::string& param) {
  const int prompt = static_cast<int>(request.prompt.size());
  const int needed = prompt + (request.max_tokens == 0 ? 0 : 1);
  if (context > 0 && needed > context) {
    fail_param(param, "request ({} tokens) exceeds the available context size ({} tokens), try increasing it",
               prompt, context);
  }
  if (context > 0 && request.max_tokens > 0)
    request.max_tokens = std::min(request.max_tokens, context - prompt);
}

std::vector<openai::TokenScore> token_scores(const Tokenizer& tokenizer, const std::vector<Draw>& draws) {
  std::vector<openai::TokenScore> out;
  out.reserve(draws.size());
  for (const auto& draw : draws) {
    openai::TokenScore score;
    score.bytes = tokenizer.token_bytes(draw.token);
    score.logprob = draw.logprob;
    for (const auto& rival : draw.top)
      score.top.emplace_back(tokenizer.token_bytes(rival.token), rival.logprob);
    out.push_back(std::move(score));
  }
  return out;
}

Generation::Generation(const Router& router, std::shared_ptr<Engine> engine,
                       std::shared_ptr<Exchange> exchange, Plan plan)
    : router_(router),
      service_(router.service()),
      engine_(std::move(engine)),
      draft_kind_(engine_->draft_kind()),
      exchange_(std::move(exchange)),
      plan_(std::move(plan)),
      started_(Clock::now()) {
  rows_.reserve(plan_.rows.size());
  std::vector<TokenId> shown;
  for (const auto& mark : plan_.marks) {
    if (const auto id = engine_->tokenizer()->token_id(mark)) shown.push_back(*id);
  }
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    rows_.emplace_back(TextStream(engine_->tokenizer(), plan_.stops, service_.options().special, shown));
  }
  open_rows_ = rows_.size();
}

void Generation::start(const Router& router, std::shared_ptr<Engine> engine,
                       std::shared_ptr<Exchange> exchange, Plan plan) {
  const std::shared_ptr<Generation> self(
      new Generation(router, std::move(engine), std::move(exchange), std::move(plan)));
  self->submit();
}

void Generation::submit() {
  const std::weak_ptr<Generation> weak = weak_from_this();
  try {
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (i > 0) plan_.rows[i].slot = -1;  // choices run side by side
      if (plan_.may_force) rows_[i].request = plan_.rows[i];
      plan_.rows[i].progress = true;
      if (service_.options().slots_debug)
        rows_[i].shown.prompt = engine_->tokenizer()->decode(plan_.rows[i].prompt, false);
      rows_[i].shown.params = plan_.rows[i].sampling;
      rows_[i].shown.max_tokens = plan_.rows[i].max_tokens;
      rows_[i].shown.prompt_tokens = static_cast<int>(plan_.rows[i].prompt.size());
      submit_row(*engine_, i, std::move(plan_.rows[i]));
    }
  } catch (...) {
    over_ = true;
    cancel_rows();
    throw;
  }
  // The last one to hold the engine must not be an event on the engine's own thread.
  engine_.reset();
  exchange_->request().logged = true;
  if (const auto& key = exchange_->request().key_label; !key.empty())
    service_.metrics().key_running.add(key, 1);
  exchange_->on_abort([weak](const std::string& reason) {
    if (const auto self = weak.lock()) self->abort(reason);
  });
  plan_.writer->begin();
}

void Generation::submit_row(Engine& engine, size_t index, Request request) {
  Row& row = rows_[index];
  // The model thread only stamps the time and hands over.
  auto sink = [self = shared_from_this(), index, epoch = row.epoch](Event event) {
    self->exchange_->post([self, index, epoch, event = std::move(event), at = Clock::now()]() mutable {
      self->on_event(index, epoch, std::move(event), at);
    });
  };
  row.handle = engine.submit(std::move(request), std::move(sink));
  row.submitted = true;
}

/// The row goes on from what it wrote and `text`: the same request with a longer prompt.
void Generation::redirect(size_t index, const std::string& text) {
  Row& row = rows_[index];
  row.handle.cancel();
  ++row.epoch;
  if (!row.asked) row.asked = row.timings;
  row.request.grammar.after.clear();  // the text ends the thought that the grammar waited for
  plan_.writer->text(index, text, {});
  const auto engine = service_.generator();
  const auto forced = engine->tokenizer()->encode(text, false, true);
  auto& prompt = row.request.prompt;
  prompt.insert(prompt.end(), row.tokens.begin(), row.tokens.end());
  prompt.insert(prompt.end(), forced.begin(), forced.end());
  const bool capped = row.request.max_tokens > 0;
  if (capped) row.request.max_tokens -= static_cast<int>(row.tokens.size());
  row.tokens.clear();
  row.request.sampling.seed = row.seed;
  row.request.progress = false;
  row.earlier_ms += row.timings.decode_ms;
  const bool full = engine->context() > 0 && static_cast<int>(prompt.size()) >= engine->context();
  if (full || (capped && row.request.max_tokens <= 0)) {
    TextEnd end;
    end.finish = "length";
    end.timings = row.timings;
    end.seed = row.seed;
    return end_row(index, end);
  }
  submit_row(*engine, index, row.request);
}

void Generation::on_event(size_t index, int epoch, Event event, TimePoint at) {
  if (over_) return;
  Row& row = rows_[index];
  if (epoch != row.epoch) return;
  try {
    if (const auto* token = std::get_if<Token>(&event); token && !row.ended) {
      if (plan_.may_force) row.tokens.push_back(token->draw.token);
      ++row.generated;
      row.timings = token->timings;
      row.seed = token->seed;
      if (row.generated == 1) {
        take_slot(index, token->timings);
        row.first = at;
        service_.metrics().first_token.observe(seconds_between(started_, at));
        const double limit = service_.live()->decode_seconds;
        const std::weak_ptr<Generation> weak = weak_from_this();
        exchange_->watch_progress(limit, [weak, limit] {
          if (const auto self = weak.lock()) {
            self->fail_all(
                {504, "server_timeout", fmt::format("no token came for {:g} seconds", limit), std::nullopt});
          }
        });
      } else {
        service_.metrics().token_gap.observe(seconds_between(row.last, at));
      }
      row.last = at;
      if (row.slot >= 0)
        service_.slots().progress(row.slot, row.task, row.shown.prompt_tokens, row.generated);
    }
    exchange_->progress();
    if (auto text = row.text.push(std::move(event))) on_text(index, std::move(*text));
  } catch (...) {
    fail_all(current_api_error());
  }
}

/// The row's place, from the first that is heard of it.
void Generation::take_slot(size_t index, const Timings& timings) {
  Row& row = rows_[index];
  if (row.slot >= 0 || timings.slot < 0) return;
  row.shown.cached_tokens = timings.cached_tokens;
  row.slot = timings.slot;
  row.task = service_.slots().take(row.slot, row.shown);
  row.figures.slot = row.slot;
  plan_.writer->placed(index, row.slot);
}

void Generation::on_progress(size_t index, const Progress& progress) {
  Row& row = rows_[index];
  if (row.generated > 0) return;  // a redirected row: its prompt is not the client's
  take_slot(index, progress.timings);
  if (row.slot >= 0) service_.slots().progress(row.slot, row.task, progress.evaluated, 0);
  if (!plan_.progress) return;
  plan_.writer->progress(index, {.total = progress.timings.prompt_tokens,
                                 .cache = progress.timings.cached_tokens,
                                 .processed = progress.evaluated,
                                 .time_ms = progress.timings.prompt_ms});
}

void Generation::on_text(size_t index, TextEvent event) {
  if (rows_[index].ended) return;
  if (auto* delta = std::get_if<TextDelta>(&event)) {
    if (plan_.timed) {
      const Row& row = rows_[index];
      openai::TimingFigures so_far;
      set_prompt(row.asked.value_or(row.timings), so_far);
      add_drafts(row.timings, draft_kind_, so_far);
      so_far.predicted_n = row.generated;
      so_far.predicted_ms = row.timings.decode_ms + row.earlier_ms;
      plan_.writer->timed(index, so_far);
    }
    plan_.writer->text(index, delta->text, delta->draws);
    if (plan_.may_force) {
      if (const auto text = plan_.writer->forced(index); !text.empty()) return redirect(index, text);
    }
    if (!over_ && plan_.writer->satisfied(index)) {
      Row& row = rows_[index];
      row.handle.cancel();
      TextEnd end;
      end.finish = "stop";
      end.timings = row.timings;
      end.seed = row.seed;
      end_row(index, end);
    }
  } else if (auto* scored = std::get_if<Scored>(&event)) {
    plan_.writer->scored(index, scored->tokens);
  } else if (const auto* progress = std::get_if<Progress>(&event)) {
    on_progress(index, *progress);
  } else if (auto* end = std::get_if<TextEnd>(&event)) {
    end_row(index, *end);
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    fail_all(to_api_error(failed->error));
  }
}

void Generation::end_row(size_t index, TextEnd& end) {
  Row& row = rows_[index];
  if (end.finish == "cancelled") {
    // Nobody here asked for it: the engine is being stopped.
    return fail_all({503, "unavailable_error", "the server is shutting down", std::nullopt});
  }
  row.ended = true;
  leave_slot(index);
  if (!end.stop_string.empty()) row.handle.cancel();
  auto& t = row.figures.timings;
  set_prompt(row.asked.value_or(end.timings), t);
  t.predicted_n = row.generated;
  add_drafts(end.timings, draft_kind_, t);
  t.predicted_ms = end.timings.decode_ms + row.earlier_ms;
  service_.metrics().queue_wait.observe(end.timings.queue_ms / 1e3);
  row.figures.finish = end.finish;
  row.figures.stop_string = end.stop_string;
  row.figures.prompt_tokens = row.asked.value_or(end.timings).prompt_tokens;
  row.figures.seed = end.seed;
  row.figures.truncated = end.truncated;
  if (!end.text.empty() || !end.draws.empty()) plan_.writer->text(index, end.text, end.draws);
  plan_.writer->end(index, row.figures);
  if (--open_rows_ > 0) return;

  openai::Usage usage;
  openai::TimingFigures totals = row.figures.timings;
  usage.prompt_tokens = plan_.prompt_tokens;
  totals.predicted_n = totals.draft_n = totals.draft_n_accepted = totals.draft_rounds = 0;
  for (const auto& each : rows_) {
    usage.completion_tokens += each.generated;
    usage.cached_tokens = std::max(usage.cached_tokens, each.figures.timings.cache_n);
    totals.predicted_n += each.generated;
    totals.draft_n += each.figures.timings.draft_n;
    totals.draft_n_accepted += each.figures.timings.draft_n_accepted;
    totals.draft_rounds += each.figures.timings.draft_rounds;
    if (totals.draft_kind.empty()) totals.draft_kind = each.figures.timings.draft_kind;
    totals.predicted_ms = std::max(totals.predicted_ms, each.figures.timings.predicted_ms);
    service_.metrics().saw_sequence(each.generated + plan_.prompt_tokens);
  }
  over_ = true;
  plan_.writer->finish(usage, totals);
  conclude(row.figures.finish, 200);
}

void Generation::abort(const std::string& reason) {
  if (over_) return;
  if (reason == "shutdown") {
    service_.metrics().cancelled.add({reason});
    return fail_all({503, "unavailable_error", "the server is shutting down", std::nullopt});
  }
  over_ = true;
  cancel_rows();
  service_.metrics().cancelled.add({reason});
  conclude("cancelled: " + reason, 499);
}

void Generation::fail_all(const ApiError& error) {
  if (over_) return;
  over_ = true;
  cancel_rows();
  if (error.type == "server_timeout") service_.metrics().cancelled.add({"no progress"});
  if (!exchange_->answered()) {
    exchange_->respond(router_.error_response(error, exchange_->request()));
  } else if (exchange_->streaming()) {
    const std::string own = plan_.writer->error_event(error);
    const std::string usual = router_.error_event(error, exchange_->request());
    exchange_->write(own.empty() ? usual : own);
    exchange_->close_stream();
  }
  conclude("error: " + error.message, error.status);
}

void Generation::cancel_rows() {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].submitted) rows_[i].handle.cancel();
    leave_slot(i);
  }
}

void Generation::leave_slot(size_t index) {
  Row& row = rows_[index];
  if (row.slot >= 0) service_.slots().give_back(row.slot, row.task);
  row.slot = -1;
}

void Generation::conclude(const std::string& finish, int status) {
  const auto now = Clock::now();
  service_.metrics().request_seconds.observe(seconds_between(started_, now));
  if (const auto& key = exchange_->request().key_label; !key.empty())
    service_.metrics().key_running.add(key, -1);
  int generated = 0, cached = 0;
  TimePoint first{};
  for (const auto& row : rows_) {
    generated += row.generated;
    cached = std::max(cached, row.figures.timings.cache_n);
    if (row.generated > 0 && (first == TimePoint{} || row.first < first)) first = row.first;
  }
  const double seconds = seconds_between(first, now);
  const HttpRequest& request = exchange_->request();
  log::info("server",
            "{} {} model={} key={} status={} tokens={}/{}/{} first={:.0f}ms rate={:.1f}/s finish={}",
            request.id, request.route, service_.options().model_id,
            request.key_label.empty() ? "-" : request.key_label, status, plan_.prompt_tokens, cached,
            generated, generated ? milliseconds_between(started_, first) : 0.0,
            generated > 1 && seconds > 0 ? (generated - 1) / seconds : 0.0, finish);
  if (Traces* traces = service_.traces()) {
    Span span;
    span.name = request.method + " " + request.route;
    span.parent = request.header("traceparent").substr(0, 64);
    span.begin = request.received;
    span.end = now;
    span.failed = status >= 500;
    span.attributes = {{"http.request.method", request.method},
                       {"http.route", request.route},
                       {"http.response.status_code", int64_t{status}},
                       {"mlxcel.request_id", request.id},
                       {"gen_ai.request.model", service_.options().model_id},
                       {"gen_ai.usage.input_tokens", int64_t{plan_.prompt_tokens}},
                       {"gen_ai.usage.output_tokens", int64_t{generated}},
                       {"mlxcel.cached_tokens", int64_t{cached}},
                       {"mlxcel.first_token_ms", generated ? milliseconds_between(started_, first) : 0.0},
                       {"mlxcel.finish", finish}};
    traces->add(std::move(span));
  }
}

}  // namespace mlxcel
