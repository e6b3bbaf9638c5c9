// POST /v1/chat/completions: messages to a prompt, rows to an answer or a stream of chunks.
#include "api/openai/chat.h"

#include "api/sse.h"
#include "engine/front/prompt.h"
#include "server/generation.h"

namespace mlxcel {
namespace {

using openai::ChatChunk;
using openai::ChatRequest;

class ChatWriter final : public AnswerWriter {
 public:
  ChatWriter(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Tokenizer> tokenizer,
             openai::Identity identity, const ChatRequest& request, int ping_seconds, std::string echo)
      : exchange_(std::move(exchange)),
        tokenizer_(std::move(tokenizer)),
        streams_(request.stream.stream),
        include_usage_(request.stream.include_usage),
        with_logprobs_(request.logprobs >= 0),
        ping_seconds_(ping_seconds),
        ignored_(request.ignored),
        echo_(std::move(echo)) {
    answer_.identity = std::move(identity);
    answer_.echoed = request.echoed;
    for (int i = 0; i < request.n; ++i) {
      answer_.choices.push_back({.index = i, .content = echo_, .finish_reason = "", .with_logprobs = with_logprobs_,
                                 .logprobs = {}});
    }
  }

  void warn(std::string warnings_json) { answer_.warnings_json = std::move(warnings_json); }

  void begin() override {
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

  void scored(size_t, const std::vector<Draw>&) override {}

  void text(size_t row, const std::string& piece, const std::vector<Draw>& draws) override {
    auto& choice = answer_.choices[row];
    if (with_logprobs_) {
      auto scores = token_scores(*tokenizer_, draws);
      if (streams_) choice.logprobs.clear();
      choice.logprobs.insert(choice.logprobs.end(), scores.begin(), scores.end());
    }
    if (!streams_) {
      choice.content += piece;
      return;
    }
    const bool scores = with_logprobs_ && !choice.logprobs.empty();
    if (piece.empty() && !scores) return;
    send({.index = choice.index, .content = piece, .logprobs = scores ? &choice.logprobs : nullptr});
  }

  void end(size_t row, const RowFigures& figures) override {
    auto& choice = answer_.choices[row];
    choice.finish_reason = figures.finish;
    if (!streams_) return;
    ++ended_;
    const bool last = ended_ == answer_.choices.size();
    send({.index = choice.index, .finish_reason = figures.finish, .timings = last ? &figures.timings : nullptr,
          .warnings_json = last ? answer_.warnings_json : std::string()});
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures& totals) override {
    if (streams_) {
      if (include_usage_) exchange_->write(sse_event(openai::print_chat_usage_chunk(answer_.identity, usage)));
      exchange_->write(std::string(kSseDone));
      exchange_->close_stream();
      return;
    }
    answer_.usage = usage;
    answer_.timings = totals;
    HttpResponse out;
    add_ignored_fields(out, ignored_);
    out.body = openai::print_chat(answer_);
    exchange_->respond(std::move(out));
  }

 private:
  void send(const ChatChunk& chunk) {
    exchange_->write(sse_event(openai::print_chat_chunk(answer_.identity, chunk, include_usage_)));
  }

  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  const bool streams_, include_usage_, with_logprobs_;
  const int ping_seconds_;
  const std::vector<std::string> ignored_;
  const std::string echo_;
  openai::ChatAnswer answer_;
  size_t ended_ = 0;
};

void chat(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const HttpRequest& http = exchange->request();
  check_wishes(http);
  const auto engine = service.generator();
  const ChatRequest request = openai::parse_chat(http.body, service.bounds(*engine));

  TemplateInput input;
  input.messages_json = request.messages_json;
  input.kwargs_json = openai::merge_objects(service.options().chat_template_kwargs, request.template_kwargs_json);
  input.continue_final_message = request.continue_final_message.value_or(
      request.last_is_assistant && service.options().prefill_assistant && !request.add_generation_prompt.value_or(false));
  input.add_generation_prompt = request.add_generation_prompt.value_or(true) && !input.continue_final_message;
  if (request.echo && !input.continue_final_message) {
    fail_param("echo", "echo: only where the last message is the assistant's and is continued");
  }
  auto prompt = prepare_chat(*engine->tokenizer(), service.chat_template().get(), input);

  Request row;
  row.prompt = std::move(prompt.tokens);
  row.sampling = service.sampling(request.sampling);
  row.sampling.logprobs = request.logprobs;
  row.max_tokens = request.max_tokens.value_or(service.options().predict);
  row.ignore_eos = request.sampling.ignore_eos.value_or(service.options().sampling.ignore_eos);
  row.route = http.route;
  fit_window(row, engine->context(), "messages");

  Generation::Plan plan;
  plan.prompt_tokens = static_cast<int>(row.prompt.size());
  plan.stops = service.stops(request.sampling);
  for (int i = 0; i < request.n; ++i) {
    plan.rows.push_back(row);
    plan.rows.back().choice = i;
  }
  auto writer = std::make_unique<ChatWriter>(exchange, engine->tokenizer(), service.identity("chatcmpl-"), request,
                                             request.ping_interval.value_or(service.options().ping_seconds),
                                             request.echo ? request.last_content : std::string());
  if (prompt.double_bos) writer->warn(openai::print_warning("double_bos", "the prompt began with two BOS; one was dropped"));
  plan.writer = std::move(writer);
  Generation::start(router, engine, exchange, std::move(plan));
}

}  // namespace

void add_chat_routes(Router& router) {
  auto handler = [&router](const auto& exchange) { chat(router, exchange); };
  router.add("POST", "/v1/chat/completions", handler);
  router.add("POST", "/chat/completions", handler);
}

}  // namespace mlxcel
