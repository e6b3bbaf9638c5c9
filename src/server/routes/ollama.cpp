// POST /api/chat and /api/generate: Ollama's dialect over a chat job, or over a raw prompt.
#include <chrono>

#include "api/ollama/ollama.h"
#include "server/chat_job.h"
#include "server/infill.h"
#include "server/model_pool.h"

namespace mlxcel {
namespace {

int64_t unix_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
int64_t nanoseconds(double ms) { return static_cast<int64_t>(ms * 1e6); }

class OllamaWriter final : public ReplyWriter {
 public:
  OllamaWriter(std::shared_ptr<Exchange> exchange, const ollama::Request& request, bool chat,
               std::vector<int32_t> context)
      : exchange_(std::move(exchange)),
        streams_(request.stream),
        chat_(chat),
        with_context_(!chat && !request.raw),
        model_(request.model),
        ignored_(request.ignored),
        context_(std::move(context)),
        started_(Clock::now()) {}

  void begin(int) override {
    if (!streams_) return;
    HttpResponse head;
    head.content_type = "application/x-ndjson";
    add_ignored_fields(head, ignored_);
    exchange_->open_stream(std::move(head), /*ping_seconds=*/-1);
  }

  void tokens(size_t, const std::vector<Draw>& draws) override {
    if (!with_context_) return;
    for (const auto& draw : draws) context_.push_back(draw.token);
  }
  void scores(size_t, std::vector<openai::TokenScore> scores) override {
    scores_.insert(scores_.end(), std::make_move_iterator(scores.begin()),
                   std::make_move_iterator(scores.end()));
  }
  void thought(size_t, const std::string& text) override { give("", text, nullptr); }
  void content(size_t, const std::string& text) override { give(text, "", nullptr); }
  void call(size_t, int, const ToolCall& call) override { give("", "", &call); }

  void end(size_t, const ReplyEnd& end, const std::vector<Warning>& warnings) override {
    done_reason_ = end.finish == "length" ? "length" : "stop";
    warnings_ = print_warnings(warnings);
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures& totals) override {
    ollama::Figures figures;
    figures.total = nanoseconds(milliseconds_between(started_, Clock::now()));
    figures.prompt = nanoseconds(totals.prompt_ms);
    figures.eval = nanoseconds(totals.predicted_ms);
    figures.prompt_count = usage.prompt_tokens;
    figures.eval_count = usage.completion_tokens;
    ollama::Line line = head();
    line.text = std::move(text_);
    line.thinking = std::move(thinking_);
    line.calls = std::move(calls_);
    line.scores = &scores_;
    line.done_reason = done_reason_;
    line.figures = &figures;
    line.context = with_context_ ? &context_ : nullptr;
    line.warnings_json = warnings_;
    if (streams_) {
      exchange_->write(print_line(line) + "\n");
      exchange_->close_stream();
      return;
    }
    HttpResponse out;
    add_ignored_fields(out, ignored_);
    out.body = print_line(line);
    exchange_->respond(std::move(out));
  }

 private:
  ollama::Line head() const {
    ollama::Line line;
    line.model = model_;
    line.created_at = ollama::rfc3339(unix_nanoseconds());
    line.chat = chat_;
    return line;
  }

  void give(const std::string& text, const std::string& thinking, const ToolCall* call) {
    if (!streams_) {
      text_ += text;
      thinking_ += thinking;
      if (call) calls_.push_back(*call);
      return;
    }
    ollama::Line line = head();
    line.text = text;
    line.thinking = thinking;
    if (call) line.calls.push_back(*call);
    line.scores = &scores_;
    exchange_->write(print_line(line) + "\n");
    scores_.clear();
  }

  std::shared_ptr<Exchange> exchange_;
  const bool streams_, chat_, with_context_;
  const std::string model_;
  const std::vector<std::string> ignored_;
  std::vector<int32_t> context_;
  const TimePoint started_;
  std::string text_, thinking_, done_reason_, warnings_;
  std::vector<ToolCall> calls_;
  std::vector<openai::TokenScore> scores_;
};

/// No prompt: the model is there already, and stays as long as it is told to.
void answer_empty(Service& service, const std::shared_ptr<Exchange>& exchange, const ollama::Request& request,
                  bool chat) {
  const bool leaves = request.keep_alive && *request.keep_alive == 0;
  if (leaves && !service.home()) {
    fail_param("keep_alive", "keep_alive: 0: this server keeps the one model it was started with");
  }
  ollama::Figures figures;
  ollama::Line line;
  line.model = request.model;
  line.created_at = ollama::rfc3339(unix_nanoseconds());
  line.chat = chat;
  line.done_reason = leaves ? "unload" : "load";
  line.figures = &figures;
  HttpResponse out;
  if (request.stream) out.content_type = "application/x-ndjson";
  out.body = print_line(line) + (request.stream ? "\n" : "");
  exchange->respond(std::move(out));
}

void check_request(const Service& service, const Engine& engine, const ollama::Request& request) {
  if (!service.serves(ollama::plain_model_name(request.model))) {
    refuse_param(404, "not_found_error", "model", "model \"{}\" not found, try pulling it first",
                 request.model.substr(0, 200));
  }
  if (request.num_ctx > engine.context() && engine.context() > 0) {
    fail_param("options.num_ctx", "options.num_ctx: {} exceeds the window of {} tokens that each slot has",
               request.num_ctx, engine.context());
  }
  if (request.suffix && !can_infill(*engine.tokenizer())) {
    fail_param("suffix", "suffix: this model's vocabulary has no fill-in-the-middle tokens");
  }
}

void answer(const Router& router, const std::shared_ptr<Exchange>& exchange, bool chat) {
  Service& service = router.service();
  check_wishes(exchange->request());
  const auto engine = service.generator();
  const auto bounds = service.bounds(*engine);
  const auto& body = exchange->request().body;
  auto request = chat ? ollama::parse_chat(body, bounds) : ollama::parse_generate(body, bounds);
  check_request(service, *engine, request);
  if (request.keep_alive && service.home())
    service.home()->keep_alive(service.options().model_id, *request.keep_alive);
  if (request.empty) return answer_empty(service, exchange, request, chat);
  ChatPrompt prompt;
  if (request.suffix) {
    const auto& tokenizer = *engine->tokenizer();
    prompt.prompt.tokens =
        infill_tokens(tokenizer, request.prompt, *request.suffix, service.options().suffix_first);
    prompt.format = reply_format("");
    request.reasoning_format = "none";
  } else if (!chat && (request.raw || !service.chat_template())) {
    prompt.prompt = prepare_raw(*engine->tokenizer(), request.prompt, {engine->context(), "prompt"});
    prompt.format = reply_format("");
    if (request.raw) request.reasoning_format = "none";
  } else {
    prompt = prepare_chat_prompt(service, *engine, request, exchange->request().key_label, engine->context());
  }
  if (!request.context.empty()) {
    auto tokens = request.context;
    tokens.insert(tokens.end(), prompt.prompt.tokens.begin(), prompt.prompt.tokens.end());
    prompt.prompt.tokens = std::move(tokens);
  }
  auto writer = std::make_unique<OllamaWriter>(exchange, request, chat, prompt.prompt.tokens);
  start_chat(router, engine, exchange, request, std::move(prompt), std::move(writer),
             {.context_cap = request.num_ctx});
}

}  // namespace

void add_ollama_chat_routes(Router& router) {
  router.add("POST", "/api/chat", [&router](const auto& exchange) { answer(router, exchange, true); });
  router.add("POST", "/api/generate", [&router](const auto& exchange) { answer(router, exchange, false); });
}

}  // namespace mlxcel
