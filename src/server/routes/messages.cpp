// POST /v1/messages and its token count: Anthropic's dialect over a chat job.
#include "api/anthropic/messages.h"

#include "server/chat_job.h"

namespace mlxcel {
namespace {

using anthropic::Block;

class MessageWriter final : public ReplyWriter {
 public:
  MessageWriter(std::shared_ptr<Exchange> exchange, std::string model,
                const anthropic::MessageRequest& request, int ping_seconds)
      : exchange_(std::move(exchange)),
        streams_(request.stream),
        ping_seconds_(ping_seconds),
        ignored_(request.ignored) {
    message_.id = random_id("msg_");
    message_.model = std::move(model);
  }

  void begin(int prompt_tokens) override {
    message_.usage.input_tokens = prompt_tokens;
    if (!streams_) return;
    HttpResponse head;
    head.content_type = "text/event-stream";
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("request-id", exchange_->request().id);
    add_ignored_fields(head, ignored_);
    exchange_->open_stream(std::move(head), ping_seconds_);
    exchange_->write(event_message_start(message_) + anthropic::event_ping());
  }

  void thought(size_t, const std::string& text) override { add(Block::Kind::thinking, text); }
  void content(size_t, const std::string& text) override { add(Block::Kind::text, text); }

  void call_open(size_t, int, const ToolCall& call) override {
    close_block();
    message_.blocks.push_back({Block::Kind::tool_use, "", call});
    open_ = true;
    if (streams_) exchange_->write(event_block_start(index_, message_.blocks.back()));
  }
  void call_arguments(size_t, int, const std::string& text) override {
    if (streams_) exchange_->write(anthropic::event_input(index_, text));
  }
  void call(size_t, int, const ToolCall& call) override {
    message_.blocks.back().call = call;
    close_block();
  }

  void end(size_t, const ReplyEnd& end, const std::vector<Warning>& warnings) override {
    close_block();
    message_.stop_reason = anthropic::stop_reason(end.finish, end.figures.stop_string);
    if (message_.stop_reason == "stop_sequence") message_.stop_sequence = end.figures.stop_string;
    message_.warnings_json = print_warnings(warnings);
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures&) override {
    message_.usage = {usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens,
                      usage.completion_tokens};
    if (streams_) {
      exchange_->write(event_message_delta(message_) + anthropic::event_message_stop());
      exchange_->close_stream();
      return;
    }
    HttpResponse out;
    out.headers.emplace_back("request-id", exchange_->request().id);
    add_ignored_fields(out, ignored_);
    out.body = print_message(message_);
    exchange_->respond(std::move(out));
  }

 private:
  void add(Block::Kind kind, const std::string& text) {
    if (!open_ || message_.blocks.back().kind != kind) {
      close_block();
      message_.blocks.push_back({kind, "", {}});
      open_ = true;
      if (streams_) exchange_->write(event_block_start(index_, message_.blocks.back()));
    }
    message_.blocks.back().text += text;
    if (streams_) exchange_->write(event_text(index_, kind, text));
  }

  void close_block() {
    if (!open_) return;
    open_ = false;
    if (streams_) {
      if (message_.blocks.back().kind == Block::Kind::thinking)
        exchange_->write(anthropic::event_signature(index_));
      exchange_->write(anthropic::event_block_stop(index_));
    }
    ++index_;
  }

  std::shared_ptr<Exchange> exchange_;
  const bool streams_;
  const int ping_seconds_;
  const std::vector<std::string> ignored_;
  anthropic::Message message_;
  int index_ = 0;
  bool open_ = false;
};

void messages(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  check_wishes(exchange->request());
  const auto engine = service.generator();
  const auto request = anthropic::parse_messages(exchange->request().body, service.bounds(*engine), false);
  ChatPrompt prompt =
      prepare_chat_prompt(service, *engine, request, exchange->request().key_label, engine->context());
  auto writer =
      std::make_unique<MessageWriter>(exchange, service.options().model_id, request,
                                      request.ping_interval.value_or(service.options().ping_seconds));
  start_chat(router, engine, exchange, request, std::move(prompt), std::move(writer),
             {.call_prefix = "toolu_"});
}

void count_tokens(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const auto engine = service.generator();
  const auto request = anthropic::parse_messages(exchange->request().body, service.bounds(*engine), true);
  const ChatPrompt prompt = prepare_chat_prompt(service, *engine, request, exchange->request().key_label);
  JsonWriter body;
  body.begin_object().field("input_tokens", prompt.prompt.tokens.size()).end_object();
  HttpResponse out;
  out.body = body.take();
  add_ignored_fields(out, request.ignored);
  exchange->respond(std::move(out));
}

}  // namespace

void add_message_routes(Router& router) {
  router.add("POST", "/v1/messages", [&router](const auto& exchange) { messages(router, exchange); });
  router.add("POST", "/v1/messages/count_tokens",
             [&router](const auto& exchange) { count_tokens(router, exchange); });
}

}  // namespace mlxcel
