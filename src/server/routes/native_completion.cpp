// POST /completion, /completions and /infill: llama-server's own shapes over rows.
#include "api/llama/completion.h"

#include <algorithm>

#include "api/sse.h"
#include "engine/front/prompt.h"
#include "server/answer_form.h"
#include "server/generation.h"
#include "server/infill.h"

namespace mlxcel {
namespace {

using llama::CompletionRequest;

std::string stop_type(const RowFigures& figures) {
  if (figures.finish == "length") return "limit";
  return figures.stop_string.empty() ? "eos" : "word";
}

/// Looks for a line, not the first, that is indented less than it should be.
struct Indent {
  bool in_line = true;  // behind the blanks of a line, or in the first
  int blanks = 0;       // of the line so far
  bool ended = false;

  void push(std::string_view piece, int least) {
    for (const char c : piece) {
      if (c == '\n') {
        in_line = false;
        blanks = 0;
      } else if (!in_line && (c == ' ' || c == '\t')) {
        ++blanks;
      } else if (!in_line) {
        in_line = true;
        ended = ended || blanks < least;
      }
    }
  }
};

class NativeWriter final : public AnswerWriter {
 public:
  NativeWriter(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Tokenizer> tokenizer,
               const Service& service, const CompletionRequest& request, const std::vector<Request>& rows,
               const std::vector<std::string>& prompts, std::string kv_mode)
      : exchange_(std::move(exchange)),
        tokenizer_(std::move(tokenizer)),
        request_(request),
        ping_seconds_(request.ping_interval.value_or(service.options().ping_seconds)) {
    for (size_t i = 0; i < rows.size(); ++i) {
      llama::Answer answer;
      answer.index = static_cast<int>(i);
      answer.model = service.options().model_id;
      answer.prompt = prompts[i / static_cast<size_t>(request.n)];
      answer.evaluated = static_cast<int>(rows[i].prompt.size());
      answer.with_probabilities = request.n_probs > 0;
      answer.post_sampling = request.sampling.post_sampling_probs;
      answer.settings = {
          .sampling = rows[i].sampling,
          .n_predict = rows[i].max_tokens,
          .n_probs = request.n_probs,
          .n_keep = rows[i].keep_tokens,
          .n_discard = rows[i].discard_tokens,
          .ignore_eos = rows[i].ignore_eos,
          .stream = request.stream,
          .grammar_lazy = !request.triggers.empty(),
          .stop = request.sampling.stop,
          .kv_mode = kv_mode,
          .grammar = request.form.kind == OutputForm::Kind::gbnf ? request.form.source : std::string()};
      for (const AdapterScale& one : rows[i].adapters.value_or(std::vector<AdapterScale>{}))
        answer.settings.adapters.emplace_back(one.id, one.scale);
      if (request.echo) answer.content = answer.prompt;
      answers_.push_back(std::move(answer));
    }
    first_.resize(rows.size());
    indents_.resize(rows.size());
  }

  void begin() override {
    if (!request_.stream) return;
    HttpResponse head;
    head.content_type = "text/event-stream";
    head.headers.emplace_back("Cache-Control", "no-cache");
    add_ignored_fields(head, request_.ignored);
    exchange_->open_stream(std::move(head), ping_seconds_);
    for (auto& answer : answers_) {
      if (!request_.echo) continue;
      llama::Frame frame;
      frame.index = answer.index;
      frame.content = std::move(answer.content);
      frame.evaluated = answer.evaluated;
      answer.content.clear();
      exchange_->write(sse_event(llama::print_frame(frame)));
    }
  }

  void placed(size_t row, int slot) override { answers_[row].id_slot = slot; }
  void scored(size_t, const std::vector<Draw>&) override {}

  void progress(size_t row, const openai::PromptProgress& progress) override {
    llama::Frame frame;
    frame.index = answers_[row].index;
    frame.id_slot = answers_[row].id_slot;
    frame.evaluated = answers_[row].evaluated;
    frame.progress = &progress;
    openai::TimingFigures timings;
    timings.cache_n = progress.cache;
    timings.prompt_n = progress.processed - progress.cache;
    timings.prompt_ms = progress.time_ms;
    if (request_.timings_per_token) frame.timings = &timings;
    exchange_->write(sse_event(llama::print_frame(frame)));
  }

  void text(size_t row, const std::string& piece, const std::vector<Draw>& draws) override {
    if (first_[row] == TimePoint{}) first_[row] = Clock::now();
    llama::Answer& answer = answers_[row];
    llama::Frame frame;
    frame.index = answer.index;
    frame.id_slot = answer.id_slot;
    frame.content = piece;
    frame.with_probabilities = answer.with_probabilities;
    frame.post_sampling = answer.post_sampling;
    for (const auto& draw : draws) {
      frame.tokens.push_back(draw.token);
      if (answer.with_probabilities) frame.probabilities.push_back(probability(draw));
    }
    answer.predicted += static_cast<int>(draws.size());
    answer.has_new_line = answer.has_new_line || piece.find('\n') != std::string::npos;
    if (request_.n_indent > 0) indents_[row].push(piece, request_.n_indent);
    if (!request_.stream) {
      answer.content += piece;
      if (request_.return_tokens)
        answer.tokens.insert(answer.tokens.end(), frame.tokens.begin(), frame.tokens.end());
      answer.probabilities.insert(answer.probabilities.end(), frame.probabilities.begin(),
                                  frame.probabilities.end());
      return;
    }
    frame.predicted = answer.predicted;
    frame.evaluated = answer.evaluated;
    openai::TimingFigures timings;
    if (request_.timings_per_token) {
      timings.prompt_n = answer.evaluated;
      timings.predicted_n = answer.predicted;
      timings.predicted_ms = milliseconds_between(first_[row], Clock::now());
      frame.timings = &timings;
    }
    exchange_->write(sse_event(llama::print_frame(frame)));
  }

  bool satisfied(size_t row) const override {
    if (request_.n_indent > 0 && indents_[row].ended) return true;
    return request_.t_max_predict_ms > 0 && answers_[row].has_new_line &&
           milliseconds_between(first_[row], Clock::now()) > request_.t_max_predict_ms;
  }

  void end(size_t row, const RowFigures& figures) override {
    llama::Answer& answer = answers_[row];
    answer.figures = figures.timings;
    answer.predicted = figures.timings.predicted_n;
    answer.stop_type = stop_type(figures);
    answer.stopping_word = figures.stop_string;
    answer.truncated = figures.truncated;
    answer.settings.seed = figures.seed;
    if (request_.stream) exchange_->write(sse_event(body(answer)));
  }

  void finish(const openai::Usage&, const openai::TimingFigures&) override {
    if (request_.stream) return exchange_->close_stream();
    HttpResponse out;
    add_ignored_fields(out, request_.ignored);
    if (!request_.many && request_.n == 1) {
      out.body = body(answers_.front());
    } else {
      out.body = "[";
      for (const auto& answer : answers_) out.body += (out.body.size() > 1 ? "," : "") + body(answer);
      out.body += "]";
    }
    exchange_->respond(std::move(out));
  }

 private:
  std::string body(const llama::Answer& answer) const {
    return llama::project(llama::print_answer(answer), request_.response_fields);
  }

  llama::Probability probability(const Draw& draw) const {
    llama::Probability out;
    out.id = draw.token;
    out.score = std::move(token_scores(*tokenizer_, {draw}).front());
    for (const auto& rival : draw.top) out.top_ids.push_back(rival.token);
    return out;
  }

  std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const CompletionRequest request_;
  const int ping_seconds_;
  std::vector<llama::Answer> answers_;
  std::vector<TimePoint> first_;
  std::vector<Indent> indents_;
};

/// A text that begins with BOS gets no other; ids are used as they are.
void drop_second_bos(const Tokenizer& tokenizer, const llama::MixedPrompt& prompt,
                     std::vector<TokenId>& tokens) {
  const auto bos = tokenizer.bos();
  const bool text = !prompt.empty() && std::holds_alternative<std::string>(prompt.front());
  if (text && bos && tokens.size() > 1 && tokens[0] == *bos && tokens[1] == *bos)
    tokens.erase(tokens.begin());
}

std::vector<TokenId> infill_prompt(const Tokenizer& tokenizer, const CompletionRequest& request,
                                   bool suffix_first) {
  std::string before;
  for (const auto& [name, text] : request.extra) before += "# " + name + "\n" + text + "\n";
  before += request.prefix + request.infill_prompt;
  return infill_tokens(tokenizer, before, request.suffix, suffix_first);
}

void complete(const Router& router, const std::shared_ptr<Exchange>& exchange, bool infill) {
  Service& service = router.service();
  const HttpRequest& http = exchange->request();
  check_wishes(http);
  const auto engine = service.generator();
  const Tokenizer& tokenizer = *engine->tokenizer();
  const CompletionRequest request = llama::parse_completion(http.body, service.bounds(*engine), infill);
  Request row;
  row.sampling = service.sampling(request.sampling);
  row.sampling.logprobs = request.n_probs > 0 ? request.n_probs : -1;
  for (const auto& [text, bias] : request.text_bias) {
    for (const TokenId id : tokenizer.encode(text, false, true)) row.sampling.logit_bias[id] = bias;
  }
  row.max_tokens = request.max_tokens_given ? request.max_tokens : service.live()->predict;
  row.ignore_eos = request.sampling.ignore_eos.value_or(service.options().sampling.ignore_eos);
  row.route = http.route;
  row.grammar = form_grammar(*engine, form_or_default(service.options(), request.form));
  for (const auto& [word, token] : request.triggers) {
    using Kind = GrammarUse::Trigger::Kind;
    row.grammar.triggers.push_back({token < 0 ? Kind::text : Kind::token, word, token});
  }
  wishes_of(service, http, request.sampling, row);

  Generation::Plan plan;
  plan.progress = request.sampling.return_progress && request.stream;
  plan.stops = service.stops(request.sampling);
  plan.marks = request.shown;
  std::vector<std::string> texts;
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    Request one = row;
    if (infill) {
      for (const auto& [text, name] :
           {std::pair(&request.prefix, "input_prefix"), std::pair(&request.suffix, "input_suffix"),
            std::pair(&request.infill_prompt, "prompt")})
        refuse_overlong(tokenizer, *text, {engine->context(), name});
      one.prompt = infill_prompt(tokenizer, request, service.options().suffix_first);
      texts.push_back(tokenizer.decode(one.prompt, false));
    } else {
      for (const auto& part : request.prompts[p]) {
        if (const auto* text = std::get_if<std::string>(&part))
          refuse_overlong(tokenizer, *text, {engine->context(), request.prompt_paths[p]});
      }
      one.prompt = llama::encode_mixed(tokenizer, request.prompts[p], true, true);
      drop_second_bos(tokenizer, request.prompts[p], one.prompt);
      texts.push_back(llama::text_of(tokenizer, request.prompts[p]));
    }
    if (one.prompt.empty()) {
      const auto start = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
      if (!start)
        fail_param(request.prompt_paths[p], "{}: empty, and this model has no token that begins a text",
                   request.prompt_paths[p]);
      one.prompt.push_back(*start);
    }
    fit_window(one, engine->context(), request.prompt_paths[p]);
    plan.prompt_tokens += static_cast<int>(one.prompt.size());
    if (request.n > 1) one.group = next_group();
    for (int i = 0; i < request.n; ++i) {
      plan.rows.push_back(one);
      plan.rows.back().choice = i;
    }
  }
  plan.writer = std::make_unique<NativeWriter>(exchange, engine->tokenizer(), service, request, plan.rows,
                                               texts, engine->kv_label());
  Generation::start(router, engine, exchange, std::move(plan));
}

}  // namespace

void add_native_completion_routes(Router& router) {
  for (const char* path : {"/completion", "/completions"}) {
    router.add("POST", path, [&router](const auto& exchange) { complete(router, exchange, false); });
  }
  router.add("POST", "/infill", [&router](const auto& exchange) { complete(router, exchange, true); });
}

}  // namespace mlxcel
