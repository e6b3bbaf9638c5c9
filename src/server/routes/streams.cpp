// Streams that can be picked up again, and control of a thought: GET and DELETE /v1/stream, POST
// /v1/streams/lookup, POST /v1/chat/completions/control.
#include <charconv>

#include "api/json_node.h"
#include "api/json_writer.h"
#include "server/query.h"
#include "server/router.h"

namespace mlxcel {
namespace {

constexpr size_t kMostIds = 256;

std::string wanted(const HttpRequest& request) {
  const auto id = query_parameter(request, "conv_id");
  if (!id || id->empty()) fail_param("conv_id", "conv_id: expected the id of a conversation");
  return *id;
}

[[noreturn]] void unknown(const std::string& id) {
  refuse_param(404, "not_found_error", "conv_id", "no stream {} is kept", id.substr(0, 80));
}

void follow(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string id = wanted(request);
  const auto log = service.streams().find(id, request.key_label);
  if (!log && service.streams().parked(id, request.key_label))
    refuse(503, "unavailable_error", "Loading model");
  if (!log) unknown(id);
  size_t from = 0;
  if (const auto text = query_parameter(request, "from")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), from);
    if (error != std::errc() || end != text->data() + text->size())
      fail_param("from", "from: expected a number of bytes");
  }
  HttpResponse head;
  head.content_type = "text/event-stream";
  head.headers.emplace_back("Cache-Control", "no-cache");
  if (!log->follow(exchange, from, std::move(head), service.options().ping_seconds)) {
    fail_param("from", "Stream offset lost, please restart");
  }
}

void lookup(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = JsonNode::parse_request(exchange->request().body);
  const auto ids = body.find("conversation_ids");
  if (!ids) fail_param("conversation_ids", "conversation_ids: expected an array of ids");
  if (ids->size() > kMostIds)
    fail_param("conversation_ids", "conversation_ids: at most {}, found {}", kMostIds, ids->size());
  JsonWriter out;
  out.begin_array();
  for (const auto& item : ids->items()) {
    const auto id = item.string();
    const auto log = service.streams().find(id, exchange->request().key_label);
    if (!log) continue;
    const auto state = log->state();
    out.begin_object()
        .field("conversation_id", id)
        .field("is_done", state.done)
        .field("total_bytes", state.total);
    out.field("started_at", state.started).key("completed_at");
    state.done ? out.value(state.completed) : out.null();
    out.end_object();
  }
  out.end_array();
  HttpResponse response;
  response.body = out.take();
  exchange->respond(std::move(response));
}

void cancel(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::string id = wanted(exchange->request());
  if (!service.streams().cancel(id, exchange->request().key_label)) unknown(id);
  HttpResponse out;
  out.status = 204;
  out.content_type.clear();
  exchange->respond(std::move(out));
}

void control(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = JsonNode::parse_request(exchange->request().body);
  const auto id = body.string("id");
  if (!id || id->empty()) fail_param("id", "id: expected the id of a chat completion");
  const auto action = body.string("action").value_or("");
  if (action != "reasoning_end")
    fail_param("action", "action: expected reasoning_end, found \"{}\"", action.substr(0, 64));
  const bool found = service.end_thought(*id, exchange->request().key_label);
  JsonWriter out;
  out.begin_object().field("success", found);
  out.field("message", found ? "the thought will end" : "no such answer runs with reasoning_control")
      .end_object();
  HttpResponse response;
  response.body = out.take();
  exchange->respond(std::move(response));
}

}  // namespace

void add_stream_routes(Router& router) {
  Service& service = router.service();
  router.add("GET", "/v1/stream", [&service](const auto& exchange) { follow(service, exchange); });
  router.add("DELETE", "/v1/stream", [&service](const auto& exchange) { cancel(service, exchange); });
  router.add("POST", "/v1/streams/lookup", [&service](const auto& exchange) { lookup(service, exchange); });
  for (const char* path : {"/v1/chat/completions/control", "/chat/completions/control"}) {
    router.add("POST", path, [&service](const auto& exchange) { control(service, exchange); });
  }
}

}  // namespace mlxcel
