// POST /v1/responses and what is kept of it: OpenAI's Responses over a chat job.
#include "api/openai/responses.h"

#include <algorithm>

#include "api/json_node.h"
#include "server/chat_job.h"

namespace mlxcel {
namespace {

using openai::OutputItem;
using openai::ResponseRequest;
using Kind = OutputItem::Kind;

/// The one string of a custom tool; its arguments as they are where they were cut.
std::string custom_input(const std::string& arguments) {
  try {
    const auto input = JsonNode::parse(arguments).find("input");
    if (input && input->kind() == JsonKind::string) return input->string();
  } catch (const Error&) {
  }
  return arguments;
}

class ResponseWriter final : public ReplyWriter {
 public:
  ResponseWriter(std::shared_ptr<Exchange> exchange, Service& service, const ResponseRequest& request,
                 std::vector<std::string> turns)
      : exchange_(std::move(exchange)),
        service_(service),
        request_(request),
        turns_(std::move(turns)),
        key_(exchange_->request().key_label),
        stop_(std::make_shared<std::atomic<bool>>(false)) {
    const auto identity = service.identity("resp_");
    response_.id = identity.id;
    response_.created = identity.created;
    response_.model = identity.model;
    response_.echoed = request.echoed;
    response_.with_logprobs = request.with_logprobs;
    response_.conversation_id = request.new_conversation ? random_id("conv_") : request.conversation_id;
  }

  void begin(int) override {
    if (request_.store)
      service_.responses().put(response_.id, key_, {openai::print_response(response_), {}, stop_});
    if (!request_.stream) return;
    HttpResponse head;
    head.content_type = "text/event-stream";
    head.headers.emplace_back("Cache-Control", "no-cache");
    add_ignored_fields(head, request_.ignored);
    exchange_->open_stream(std::move(head), service_.options().ping_seconds);
    write(events_.whole("response.created", response_));
    write(events_.whole("response.in_progress", response_));
  }

  bool stopped(size_t) const override { return *stop_; }

  void progress(size_t, const openai::PromptProgress& progress) override {
    write(events_.in_progress(response_, progress));
  }
  void timed(size_t, const openai::TimingFigures& figures) override { so_far_ = figures; }

  void scores(size_t, std::vector<openai::TokenScore> scores) override {
    if (!request_.with_logprobs) return;
    pending_.insert(pending_.end(), std::make_move_iterator(scores.begin()),
                    std::make_move_iterator(scores.end()));
  }

  void thought(size_t, const std::string& text) override {
    pending_.clear();  // log-probabilities belong to the message
    OutputItem& item = open(Kind::reasoning);
    item.text += text;
    if (request_.stream)
      write(events_.piece("response.reasoning_text.delta", "delta", last(), item, text, true, nullptr,
                          so_far()));
  }

  void content(size_t, const std::string& text) override {
    OutputItem& item = open(Kind::message);
    item.text += text;
    if (request_.stream)
      write(events_.piece("response.output_text.delta", "delta", last(), item, text, true, &pending_,
                          so_far()));
    item.scores.insert(item.scores.end(), pending_.begin(), pending_.end());
    pending_.clear();
  }

  void call_open(size_t, int, const ToolCall& call) override {
    close();
    const auto& custom = request_.custom_tools;
    const bool is_custom = std::find(custom.begin(), custom.end(), call.name) != custom.end();
    OutputItem item;
    item.kind = is_custom ? Kind::custom_tool_call : Kind::function_call;
    item.id = random_id(is_custom ? "ctc_" : "fc_");
    item.call = call;
    response_.output.push_back(std::move(item));
    if (request_.stream) write(events_.item_added(last(), response_.output.back()));
  }

  void call_arguments(size_t, int, const std::string& text) override {
    OutputItem& item = response_.output.back();
    item.call.arguments += text;
    // A custom tool's input is a string inside them, known once they are whole.
    if (request_.stream && item.kind == Kind::function_call)
      write(events_.piece("response.function_call_arguments.delta", "delta", last(), item, text, false));
  }

  void call(size_t, int, const ToolCall& call) override {
    OutputItem& item = response_.output.back();
    item.call = call;
    if (item.kind == Kind::custom_tool_call) {
      item.input = custom_input(call.arguments);
      if (request_.stream) {
        write(
            events_.piece("response.custom_tool_call_input.delta", "delta", last(), item, item.input, false));
        write(
            events_.piece("response.custom_tool_call_input.done", "input", last(), item, item.input, false));
      }
    } else if (request_.stream) {
      write(events_.piece("response.function_call_arguments.done", "arguments", last(), item, call.arguments,
                          false));
    }
    item.done = true;
    if (request_.stream) write(events_.item_done(last(), item));
  }

  void end(size_t, const ReplyEnd& end, const std::vector<Warning>& warnings) override {
    close();
    response_.status = *stop_ ? "cancelled" : end.finish == "length" ? "incomplete" : "completed";
    if (response_.status == "incomplete") response_.incomplete_reason = "max_output_tokens";
    response_.warnings_json = print_warnings(warnings);
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures& totals) override {
    response_.usage = usage;
    response_.with_usage = true;
    response_.completed = service_.identity("").created;
    keep();
    if (request_.stream) {
      write(events_.whole(response_.status == "incomplete" ? "response.incomplete" : "response.completed",
                          response_, request_.timings_per_token ? &totals : nullptr));
      exchange_->close_stream();
      return;
    }
    HttpResponse out;
    add_ignored_fields(out, request_.ignored);
    out.body = openai::print_response(response_);
    exchange_->respond(std::move(out));
  }

  std::string error_event(const ApiError& error) override {
    response_.status = "failed";
    response_.error_code = error.type;
    response_.error_message = error.message;
    keep();
    std::string out = events_.error(error.type, error.message);  // numbered in this order
    out += events_.whole("response.failed", response_);
    return out;
  }

 private:
  size_t last() const { return response_.output.size() - 1; }
  const openai::TimingFigures* so_far() const { return so_far_ ? &*so_far_ : nullptr; }
  void write(std::string bytes) { exchange_->write(std::move(bytes)); }

  OutputItem& open(Kind kind) {
    auto& output = response_.output;
    if (!output.empty() && !output.back().done && output.back().kind == kind) return output.back();
    close();
    OutputItem item;
    item.kind = kind;
    item.id = random_id(kind == Kind::reasoning ? "rs_" : "msg_");
    output.push_back(std::move(item));
    if (request_.stream) {
      write(events_.item_added(last(), output.back()));
      write(events_.part_added(last(), output.back()));
    }
    return output.back();
  }

  void close() {
    if (response_.output.empty() || response_.output.back().done) return;
    OutputItem& item = response_.output.back();
    item.done = true;
    if (!request_.stream) return;
    const bool thought = item.kind == Kind::reasoning;
    write(events_.piece(thought ? "response.reasoning_text.done" : "response.output_text.done", "text",
                        last(), item, item.text, true, thought ? nullptr : &item.scores));
    write(events_.part_done(last(), item));
    write(events_.item_done(last(), item));
  }

  void keep() {
    auto turns = turns_;
    turns.push_back(openai::output_turn(response_));
    if (!response_.conversation_id.empty())
      service_.conversations().put(response_.conversation_id, key_, {"", turns, nullptr});
    if (request_.store)
      service_.responses().put(response_.id, key_,
                               {openai::print_response(response_), std::move(turns), nullptr});
  }

  std::shared_ptr<Exchange> exchange_;
  Service& service_;
  const ResponseRequest request_;
  const std::vector<std::string> turns_;
  const std::string key_;
  std::shared_ptr<std::atomic<bool>> stop_;
  openai::ResponseObject response_;
  openai::ResponseEvents events_;
  std::vector<openai::TokenScore> pending_;
  std::optional<openai::TimingFigures> so_far_;  // where the request asked for it
};

/// What was said before this input.
std::vector<std::string> earlier_turns(Service& service, const ResponseRequest& request,
                                       const std::string& key) {
  if (!request.previous_response_id.empty()) {
    auto found = service.responses().get(request.previous_response_id, key);
    if (!found || found->turns.empty()) {
      refuse_param(404, "not_found_error", "previous_response_id",
                   "previous_response_id: no response {} is kept",
                   request.previous_response_id.substr(0, 80));
    }
    return std::move(found->turns);
  }
  if (!request.conversation_id.empty()) {
    auto found = service.conversations().get(request.conversation_id, key);
    if (!found) {
      refuse_param(404, "not_found_error", "conversation", "conversation: no conversation {} is kept",
                   request.conversation_id.substr(0, 80));
    }
    return std::move(found->turns);
  }
  return {};
}

/// What `item_reference` names: an item of a response that is kept for this key.
openai::ItemLookup kept_items(Service& service, const std::string& key) {
  return [&service, key](const std::string& id) -> std::optional<std::string> {
    JsonWriter name;
    name.begin_object().field("id", id).end_object();
    const std::string member = name.take();  // {"id":"…"}
    const auto json = service.responses().find_text(member.substr(1, member.size() - 2), key);
    if (!json) return std::nullopt;
    const auto root = JsonNode::parse(*json);
    for (const auto& item : root.find("output")->items())
      if (item.string("id") == id) return item.dump();
    return std::nullopt;
  };
}

struct Prepared {
  std::vector<std::string> turns;
  ChatPrompt prompt;
};

Prepared prepare(Service& service, const Engine& engine, ResponseRequest& request, const std::string& key,
                 bool counting) {
  Prepared out;
  out.turns = earlier_turns(service, request, key);
  out.turns.insert(out.turns.end(), request.turns.begin(), request.turns.end());
  for (int dropped = 0;; ++dropped) {
    request.messages_json = openai::conversation_json(request.instructions, {}, out.turns);
    // What may be cut to fit is encoded whole, however long.
    out.prompt = prepare_chat_prompt(service, engine, request, key,
                                     request.truncate || counting ? 0 : engine.context());
    const bool fits =
        engine.context() <= 0 || static_cast<int>(out.prompt.prompt.tokens.size()) < engine.context();
    if (fits || !request.truncate || !openai::drop_oldest(out.turns)) {
      if (dropped > 0) {
        out.prompt.warnings.push_back(
            {"truncated", fmt::format("{} of the oldest turns were dropped to fit the window", dropped)});
      }
      return out;
    }
  }
}

void respond(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  check_wishes(exchange->request());
  const auto engine = service.generator();
  auto request = openai::parse_response(exchange->request().body, service.bounds(*engine), false,
                                        kept_items(service, exchange->request().key_label));
  auto prepared = prepare(service, *engine, request, exchange->request().key_label, false);
  auto writer = std::make_unique<ResponseWriter>(exchange, service, request, std::move(prepared.turns));
  ChatOptions options;
  options.timed = request.timings_per_token && request.stream;
  options.progress = request.sampling.return_progress && request.stream;
  start_chat(router, engine, exchange, request, std::move(prepared.prompt), std::move(writer), options);
}

void count(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const auto engine = service.generator();
  auto request = openai::parse_response(exchange->request().body, service.bounds(*engine), true,
                                        kept_items(service, exchange->request().key_label));
  const auto prepared = prepare(service, *engine, request, exchange->request().key_label, true);
  JsonWriter body;
  body.begin_object().field("object", "response.input_tokens");
  body.field("input_tokens", prepared.prompt.prompt.tokens.size()).end_object();
  HttpResponse out;
  out.body = body.take();
  add_ignored_fields(out, request.ignored);
  exchange->respond(std::move(out));
}

std::string id_in_path(const HttpRequest& request) {
  std::string path = request.path;
  if (path.ends_with("/cancel")) path.resize(path.size() - 7);
  return path.substr(path.rfind('/') + 1);
}

[[noreturn]] void unknown(const std::string& id) {
  refuse_param(404, "not_found_error", "response_id", "no response {} is kept", id.substr(0, 80));
}

void get(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto id = id_in_path(exchange->request());
  const auto found = service.responses().get(id, exchange->request().key_label);
  if (!found) unknown(id);
  HttpResponse out;
  out.body = found->json;
  exchange->respond(std::move(out));
}

void cancel(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto id = id_in_path(exchange->request());
  const auto found = service.responses().get(id, exchange->request().key_label);
  if (!found) unknown(id);
  if (found->stop) *found->stop = true;
  HttpResponse out;
  out.body = found->json;
  exchange->respond(std::move(out));
}

void erase(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto id = id_in_path(exchange->request());
  if (!service.responses().erase(id, exchange->request().key_label)) unknown(id);
  JsonWriter body;
  body.begin_object().field("id", id).field("object", "response").field("deleted", true).end_object();
  HttpResponse out;
  out.body = body.take();
  exchange->respond(std::move(out));
}

}  // namespace

void add_response_routes(Router& router) {
  Service& service = router.service();
  for (const auto& prefix : {std::string("/v1"), std::string()}) {
    router.add("POST", prefix + "/responses", [&router](const auto& exchange) { respond(router, exchange); });
    router.add("POST", prefix + "/responses/input_tokens",
               [&router](const auto& exchange) { count(router, exchange); });
    router.add("GET", prefix + "/responses/{id}",
               [&service](const auto& exchange) { get(service, exchange); });
    router.add("DELETE", prefix + "/responses/{id}",
               [&service](const auto& exchange) { erase(service, exchange); });
    router.add("POST", prefix + "/responses/{id}/cancel",
               [&service](const auto& exchange) { cancel(service, exchange); });
  }
}

}  // namespace mlxcel
