#include "api/openai/responses.h"
#include "api/sse.h"
#include "api/tools.h"

namespace mlxcel::openai {
namespace {

using Kind = OutputItem::Kind;

void print_scores(JsonWriter& out, const std::vector<TokenScore>& scores) {
  JsonWriter list;
  print_chat_logprobs(list, scores);
  const std::string& text = list.text();  // {"content": [...], "refusal": null}
  const size_t from = text.find('['), to = text.rfind(']');
  out.key("logprobs").raw(text.substr(from, to - from + 1));
}

void print_figures(JsonWriter& out, const TimingFigures* timings) {
  if (!timings) return;
  out.key("timings");
  print_timings(out, *timings);
}

void print_text_part(JsonWriter& out, const OutputItem& item, bool empty) {
  out.begin_object().field("type", "output_text").field("text", empty ? std::string() : item.text);
  out.key("annotations").begin_array().end_array();
  print_scores(out, empty ? std::vector<TokenScore>() : item.scores);
  out.end_object();
}

void print_reasoning_part(JsonWriter& out, const OutputItem& item, bool empty) {
  out.begin_object()
      .field("type", "reasoning_text")
      .field("text", empty ? std::string() : item.text)
      .end_object();
}

/// `empty`: as it is when it is added, before anything of it came.
void print_item(JsonWriter& out, const OutputItem& item, bool empty) {
  out.begin_object().field("id", item.id);
  const char* status = item.done && !empty ? "completed" : "in_progress";
  switch (item.kind) {
    case Kind::reasoning:
      out.field("type", "reasoning").key("summary").begin_array().end_array().key("content").begin_array();
      if (!empty) print_reasoning_part(out, item, false);
      out.end_array().key("encrypted_content").null();
      break;
    case Kind::message:
      out.field("type", "message").field("role", "assistant").key("content").begin_array();
      if (!empty) print_text_part(out, item, false);
      out.end_array();
      break;
    case Kind::function_call:
      out.field("type", "function_call").field("call_id", item.call.id).field("name", item.call.name);
      out.field("arguments", empty ? std::string() : item.call.arguments);
      break;
    case Kind::custom_tool_call:
      out.field("type", "custom_tool_call").field("call_id", item.call.id).field("name", item.call.name);
      out.field("input", empty ? std::string() : item.input);
      break;
  }
  out.field("status", status).end_object();
}

void print_object(JsonWriter& out, const ResponseObject& r) {
  out.begin_object().field("id", r.id).field("object", "response").field("created_at", r.created);
  out.key("completed_at");
  r.completed ? out.value(r.completed) : out.null();
  out.field("status", r.status).key("incomplete_details");
  if (r.incomplete_reason.empty())
    out.null();
  else
    out.begin_object().field("reason", r.incomplete_reason).end_object();
  out.key("error");
  if (r.error_message.empty())
    out.null();
  else
    out.begin_object().field("code", r.error_code).field("message", r.error_message).end_object();
  out.field("model", r.model).key("output").begin_array();
  std::string text;
  for (const auto& item : r.output) {
    print_item(out, item, false);
    if (item.kind == Kind::message) text += item.text;
  }
  out.end_array().field("output_text", text).field("background", false);
  for (const auto& [name, json] : r.echoed) out.key(name).raw(json);
  if (!r.conversation_id.empty())
    out.key("conversation").begin_object().field("id", r.conversation_id).end_object();
  out.key("usage");
  if (r.with_usage) {
    out.begin_object()
        .field("input_tokens", r.usage.prompt_tokens)
        .key("input_tokens_details")
        .begin_object();
    out.field("cached_tokens", r.usage.cached_tokens)
        .end_object()
        .field("output_tokens", r.usage.completion_tokens);
    out.key("output_tokens_details")
        .begin_object()
        .field("reasoning_tokens", r.usage.reasoning_tokens)
        .end_object();
    out.field("total_tokens", r.usage.prompt_tokens + r.usage.completion_tokens).end_object();
  } else {
    out.null();
  }
  if (!r.warnings_json.empty()) out.key("warnings").raw(r.warnings_json);
  out.end_object();
}

}  // namespace

std::string print_response(const ResponseObject& response) {
  JsonWriter out;
  print_object(out, response);
  return out.take();
}

std::string output_turn(const ResponseObject& response) {
  std::string text, thought;
  JsonWriter calls;
  calls.begin_array();
  bool any = false;
  for (const auto& item : response.output) {
    if (item.kind == Kind::message) text += item.text;
    if (item.kind == Kind::reasoning) thought += item.text;
    if (item.kind != Kind::function_call && item.kind != Kind::custom_tool_call) continue;
    any = true;
    calls.begin_object().field("id", item.call.id).field("type", "function").key("function").begin_object();
    calls.field("name", item.call.name)
        .key("arguments")
        .raw(whole_arguments(item.call.arguments))
        .end_object()
        .end_object();
  }
  calls.end_array();
  JsonWriter out;
  out.begin_object().field("role", "assistant").key("content");
  text.empty() && any ? out.null() : out.value(text);
  if (!thought.empty()) out.field("reasoning_content", thought);
  if (any) out.key("tool_calls").raw(calls.text());
  out.end_object();
  return out.take();
}

JsonWriter ResponseEvents::begin(const char* type) {
  JsonWriter out;
  out.begin_object().field("type", type).field("sequence_number", sequence_++);
  return out;
}

std::string ResponseEvents::end(const char* type, JsonWriter& data) {
  data.end_object();
  return sse_named_event(type, data.text());
}

std::string ResponseEvents::whole(const char* type, const ResponseObject& response,
                                  const TimingFigures* timings) {
  auto out = begin(type);
  out.key("response");
  print_object(out, response);
  print_figures(out, timings);
  return end(type, out);
}

std::string ResponseEvents::in_progress(const ResponseObject& response, const PromptProgress& progress) {
  auto out = begin("response.in_progress");
  out.key("response");
  print_object(out, response);
  out.key("prompt_progress");
  print_progress(out, progress);
  return end("response.in_progress", out);
}

std::string ResponseEvents::item_added(size_t index, const OutputItem& item) {
  auto out = begin("response.output_item.added");
  out.field("output_index", index).key("item");
  print_item(out, item, true);
  return end("response.output_item.added", out);
}

std::string ResponseEvents::item_done(size_t index, const OutputItem& item) {
  auto out = begin("response.output_item.done");
  out.field("output_index", index).key("item");
  print_item(out, item, false);
  return end("response.output_item.done", out);
}

std::string ResponseEvents::part_added(size_t index, const OutputItem& item) {
  auto out = begin("response.content_part.added");
  out.field("item_id", item.id).field("output_index", index).field("content_index", 0).key("part");
  item.kind == Kind::reasoning ? print_reasoning_part(out, item, true) : print_text_part(out, item, true);
  return end("response.content_part.added", out);
}

std::string ResponseEvents::part_done(size_t index, const OutputItem& item) {
  auto out = begin("response.content_part.done");
  out.field("item_id", item.id).field("output_index", index).field("content_index", 0).key("part");
  item.kind == Kind::reasoning ? print_reasoning_part(out, item, false) : print_text_part(out, item, false);
  return end("response.content_part.done", out);
}

std::string ResponseEvents::piece(const char* type, const char* key, size_t index, const OutputItem& item,
                                  const std::string& text, bool with_content_index,
                                  const std::vector<TokenScore>* scores, const TimingFigures* timings) {
  auto out = begin(type);
  out.field("item_id", item.id).field("output_index", index);
  if (with_content_index) out.field("content_index", 0);
  out.field(key, text);
  if (scores) print_scores(out, *scores);
  print_figures(out, timings);
  return end(type, out);
}

std::string ResponseEvents::error(const std::string& code, const std::string& message) {
  auto out = begin("error");
  out.field("code", code).field("message", message).key("param").null();
  return end("error", out);
}

}  // namespace mlxcel::openai
