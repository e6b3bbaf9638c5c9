// POST /v1/chat/completions: the request to a chat job, its answer to chunks or one body.
#include "api/openai/chat.h"

#include "api/sse.h"
#include "server/chat_job.h"

namespace mlxcel {
namespace {

using openai::ChatChunk;
using openai::ChatRequest;

class ChatWriter final : public ReplyWriter {
 public:
  ChatWriter(std::shared_ptr<Exchange> exchange, openai::Identity identity, const ChatRequest& request,
             const ServiceOptions& options, std::string echo)
      : exchange_(std::move(exchange)),
        streams_(request.stream.stream),
        include_usage_(request.stream.include_usage),
        with_logprobs_(request.logprobs >= 0),
        ping_seconds_(request.ping_interval.value_or(options.ping_seconds)),
        alias_(options.reasoning_alias),
        ignored_(request.ignored),
        echo_(std::move(echo)) {
    answer_.identity = std::move(identity);
    answer_.echoed = request.echoed;
    for (int i = 0; i < request.n; ++i) {
      answer_.choices.push_back({.index = i,
                                 .content = echo_,
                                 .reasoning = "",
                                 .calls = {},
                                 .finish_reason = "",
                                 .with_logprobs = with_logprobs_,
                                 .logprobs = {}});
    }
  }

  void begin(int) override {
    if (!streams_) return;
    HttpResponse head;
    head.content_type = "text/event-stream";
    head.headers.emplace_back("Cache-Control", "no-cache");
    add_ignored_fields(head, ignored_);
    exchange_->open_stream(std::move(head), ping_seconds_);
    for (const auto& choice : answer_.choices) {
      send({.index = choice.index, .role = true});
      if (!echo_.empty()) send({.index = choice.index, .content = echo_});
    }
  }

  void timed(size_t, const openai::TimingFigures& figures) override { so_far_ = figures; }

  void scores(size_t row, std::vector<openai::TokenScore> scores) override {
    auto& list = answer_.choices[row].logprobs;
    list.insert(list.end(), std::make_move_iterator(scores.begin()), std::make_move_iterator(scores.end()));
  }

  void progress(size_t row, const openai::PromptProgress& progress) override {
    send({.index = static_cast<int>(row), .progress = &progress});
  }

  void thought(size_t row, const std::string& text) override {
    if (!streams_)
      answer_.choices[row].reasoning += text;
    else
      send_text(row, {.index = static_cast<int>(row), .reasoning = text});
  }

  void content(size_t row, const std::string& text) override {
    if (!streams_)
      answer_.choices[row].content += text;
    else
      send_text(row, {.index = static_cast<int>(row), .content = text});
  }

  void call_open(size_t row, int index, const ToolCall& call) override {
    if (streams_) send({.index = static_cast<int>(row), .call = &call, .call_index = index});
  }
  void call_arguments(size_t row, int index, const std::string& text) override {
    if (streams_) send_text(row, {.index = static_cast<int>(row), .call_index = index, .arguments = &text});
  }
  void call(size_t row, int, const ToolCall& call) override {
    if (!streams_) answer_.choices[row].calls.push_back(call);
  }

  void end(size_t row, const ReplyEnd& end, const std::vector<Warning>& warnings) override {
    auto& choice = answer_.choices[row];
    choice.finish_reason = end.finish;
    answer_.warnings_json = print_warnings(warnings);
    if (!streams_) return;
    if (!choice.logprobs.empty()) send_text(row, {.index = choice.index});
    ++ended_;
    const bool last = ended_ == answer_.choices.size();
    send({.index = choice.index,
          .finish_reason = end.finish,
          .timings = last ? &end.figures.timings : nullptr,
          .warnings_json = last ? answer_.warnings_json : std::string()});
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures& totals) override {
    if (streams_) {
      if (include_usage_)
        exchange_->write(sse_event(openai::print_chat_usage_chunk(answer_.identity, usage, totals)));
      exchange_->write(std::string(kSseDone));
      exchange_->close_stream();
      return;
    }
    answer_.usage = usage;
    answer_.timings = totals;
    HttpResponse out;
    add_ignored_fields(out, ignored_);
    out.body = openai::print_chat(answer_, alias_);
    exchange_->respond(std::move(out));
  }

 private:
  /// With the log-probabilities that have gathered.
  void send_text(size_t row, ChatChunk chunk) {
    auto& scores = answer_.choices[row].logprobs;
    if (!scores.empty()) chunk.logprobs = &scores;
    if (so_far_) chunk.timings = &*so_far_;
    send(chunk);
    scores.clear();
  }
  void send(const ChatChunk& chunk) {
    exchange_->write(sse_event(openai::print_chat_chunk(answer_.identity, chunk, include_usage_, alias_)));
  }

  std::shared_ptr<Exchange> exchange_;
  const bool streams_, include_usage_, with_logprobs_;
  const int ping_seconds_;
  const std::string alias_;
  const std::vector<std::string> ignored_;
  const std::string echo_;
  std::optional<openai::TimingFigures> so_far_;
  openai::ChatAnswer answer_;
  size_t ended_ = 0;
};

void chat(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const HttpRequest& http = exchange->request();
  check_wishes(http);
  const auto engine = service.generator();
  const ChatRequest request = openai::parse_chat(http.body, service.bounds(*engine));
  ChatPrompt prompt =
      prepare_chat_prompt(service, *engine, request, exchange->request().key_label, engine->context());
  if (request.echo && prompt.continued.empty()) {
    fail_param("echo", "echo: only where the last message is the assistant's and is continued");
  }
  auto identity = service.identity("chatcmpl-");
  ChatOptions options;
  options.timed = request.timings_per_token && request.stream.stream;
  options.progress = request.sampling.return_progress && request.stream.stream;
  if (request.reasoning_control) options.end_thought = service.control_of(identity.id, http.key_label);
  auto writer = std::make_unique<ChatWriter>(exchange, std::move(identity), request, service.options(),
                                             request.echo ? request.last_content : std::string());
  start_chat(router, engine, exchange, request, std::move(prompt), std::move(writer), options);
}

void count_chat(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const auto engine = service.generator();
  const ChatRequest request = openai::parse_chat(exchange->request().body, service.bounds(*engine));
  const ChatPrompt prompt = prepare_chat_prompt(service, *engine, request, exchange->request().key_label);
  JsonWriter body;
  body.begin_object()
      .field("object", "response.input_tokens")
      .field("input_tokens", prompt.prompt.tokens.size())
      .end_object();
  HttpResponse out;
  out.body = body.take();
  add_ignored_fields(out, request.ignored);
  exchange->respond(std::move(out));
}

}  // namespace

void add_chat_routes(Router& router) {
  for (const auto& prefix : {std::string("/v1"), std::string()}) {
    router.add("POST", prefix + "/chat/completions",
               [&router](const auto& exchange) { chat(router, exchange); });
    router.add("POST", prefix + "/chat/completions/input_tokens",
               [&router](const auto& exchange) { count_chat(router, exchange); });
  }
}

}  // namespace mlxcel
