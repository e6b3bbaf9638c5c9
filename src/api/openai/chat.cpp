#include "api/openai/chat.h"

#include <algorithm>
#include <array>
#include <map>

#include "api/error.h"
#include "api/output_form.h"
#include "api/tools.h"

namespace mlxcel::openai {
namespace {

struct Message {
  std::string role;
  std::string content;
  bool null_content = false;
  bool has_more = false;  // tool calls or reasoning: something to answer without text
  std::vector<std::pair<std::string, std::string>> extra;  // name, JSON text
};

/// Text parts joined by newlines; a part that is not text is refused before anything is fetched.
std::string join_parts(const JsonNode& content) {
  std::string out;
  bool first = true;
  for (const auto& part : content.items()) {
    if (part.kind() != JsonKind::object) part.wrong("an object with a type");
    const auto type = part.string("type");
    if (!type) fail_param(part.path() + ".type", "{}.type: expected a string", part.path());
    if (*type == "text" || *type == "refusal") {
      const auto text = part.string(*type);
      if (!text) fail_param(part.path() + "." + *type, "{}.{}: expected a string", part.path(), *type);
      if (!first) out += '\n';
      out += *text;
      first = false;
      continue;
    }
    static constexpr std::array<std::string_view, 4> kMedia = {"image_url", "video_url", "input_video",
                                                               "input_audio"};
    if (std::find(kMedia.begin(), kMedia.end(), *type) != kMedia.end()) {
      refuse_param(501, "not_supported_error", part.path(),
                   "{}: this model takes text only, found a part of type {}", part.path(), *type);
    }
    fail_param(part.path() + ".type", "{}.type: \"{}\" is not a known part; expected text", part.path(),
               type->substr(0, 64));
  }
  return out;
}

/// Arguments arrive as JSON text; templates expect the object.
std::string normalise_tool_calls(const JsonNode& calls) {
  JsonWriter out;
  out.begin_array();
  for (const auto& call : calls.items()) {
    const auto function = call.find("function");
    if (!function) fail_param(call.path() + ".function", "{}.function: expected an object", call.path());
    const auto name = function->string("name");
    if (!name) fail_param(call.path() + ".function.name", "{}.function.name: expected a string", call.path());
    out.begin_object();
    if (const auto id = call.string("id")) out.field("id", *id);
    out.field("type", "function").key("function").begin_object().field("name", *name);
    const auto arguments = function->find("arguments");
    out.key("arguments");
    if (!arguments) {
      out.raw("{}");
    } else if (arguments->kind() == JsonKind::string) {
      const std::string text = arguments->string();
      try {
        out.raw(JsonNode::parse(text).dump());
      } catch (const Error&) {
        out.value(text);  // a call the model once got wrong is shown to it as it was
      }
    } else {
      out.raw(arguments->dump());
    }
    out.end_object().end_object();
  }
  out.end_array();
  return out.take();
}

Message parse_message(const JsonNode& node) {
  if (node.kind() != JsonKind::object) node.wrong("an object with role and content");
  Message out;
  const auto role = node.string("role");
  if (!role) fail_param(node.path() + ".role", "{}.role: expected a string", node.path());
  static constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                             "assistant", "tool",      "function"};
  if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    fail_param(node.path() + ".role",
               "{}.role: expected system, developer, user, assistant, tool or function, found \"{}\"",
               node.path(), role->substr(0, 64));
  }
  out.role = *role == "developer" ? "system" : *role;
  if (const auto content = node.find("content")) {
    if (content->kind() == JsonKind::string) {
      out.content = content->string();
    } else if (content->kind() == JsonKind::array) {
      out.content = join_parts(*content);
    } else {
      content->wrong("a string, null or an array of parts");
    }
  } else {
    out.null_content = true;
  }
  if (const auto name = node.string("name")) out.extra.emplace_back("name", JsonWriter().value(*name).take());
  if (const auto id = node.string("tool_call_id")) {
    out.extra.emplace_back("tool_call_id", JsonWriter().value(*id).take());
  }
  if (out.role == "assistant") {
    auto reasoning = node.string("reasoning_content");
    if (!reasoning) reasoning = node.string("reasoning");
    if (reasoning && !reasoning->empty()) {
      out.extra.emplace_back("reasoning_content", JsonWriter().value(*reasoning).take());
      out.has_more = true;
    }
    if (const auto calls = node.find("tool_calls")) {
      if (calls->kind() != JsonKind::array) calls->wrong("an array");
      if (calls->size() > 0) {
        out.extra.emplace_back("tool_calls", normalise_tool_calls(*calls));
        out.has_more = true;
      }
    }
  }
  return out;
}

std::vector<Message> parse_messages(const JsonNode& body) {
  const auto node = body.find("messages");
  if (!node) fail_param("messages", "messages: expected a non-empty array, found none");
  if (node->kind() != JsonKind::array) node->wrong("a non-empty array");
  if (node->size() == 0) fail_param("messages", "messages: expected at least one message, found none");
  std::vector<Message> out;
  for (const auto& item : node->items()) out.push_back(parse_message(item));
  const auto& last = out.back();
  if (last.content.empty() && !last.has_more) {
    const auto path = fmt::format("messages[{}].content", out.size() - 1);
    fail_param(path, "{}: the last message is empty, there is nothing to answer", path);
  }
  if (out.size() > 1 && last.role == "assistant" && out[out.size() - 2].role == "assistant") {
    fail_param("messages",
               "messages: the last two messages are both of the assistant; at most one may be continued");
  }
  return out;
}

std::string print_messages(const std::vector<Message>& messages) {
  JsonWriter out;
  out.begin_array();
  for (const auto& message : messages) {
    out.begin_object().field("role", message.role).key("content");
    message.null_content&& message.has_more ? out.null() : out.value(message.content);
    for (const auto& [name, json] : message.extra) out.key(name).raw(json);
    out.end_object();
  }
  out.end_array();
  return out.take();
}

/// Template variables: chat_template_kwargs, and the short spellings that are variables too.
std::string parse_kwargs(const JsonNode& body) {
  std::map<std::string, std::string> variables;
  auto thinking = [&](bool on) {
    for (const char* name : {"enable_thinking", "thinking"}) variables[name] = on ? "true" : "false";
  };
  auto effort = [&](const std::string& level) {
    for (const char* name : {"reasoning_effort", "reasoning_strength"})
      variables[name] = JsonWriter().value(level).take();
    if (level == "none") thinking(false);
  };
  if (const auto level = body.string("reasoning_effort")) effort(*level);
  if (const auto reasoning = body.find("reasoning")) {
    if (reasoning->kind() != JsonKind::object) reasoning->wrong("an object with effort or enabled");
    if (const auto level = reasoning->string("effort")) effort(*level);
    if (const auto enabled = reasoning->boolean("enabled")) thinking(*enabled);
    reasoning->string("summary");
  }
  if (const auto on = body.find("thinking")) {
    if (on->kind() == JsonKind::boolean) {
      thinking(on->boolean());
    } else if (on->kind() == JsonKind::object) {
      thinking(on->string("type").value_or("enabled") != "disabled");
    } else {
      on->wrong("a boolean or an object");
    }
  }
  if (const auto on = body.boolean("enable_thinking")) thinking(*on);
  if (const auto keep = body.boolean("preserve_thinking")) {
    for (const char* name : {"preserve_thinking", "preserve_reasoning"})
      variables[name] = *keep ? "true" : "false";
  }
  if (const auto kwargs = body.find("chat_template_kwargs")) {
    if (kwargs->kind() != JsonKind::object) kwargs->wrong("an object");
    for (const auto& [name, value] : kwargs->members()) variables[name] = value.dump();
  }
  if (variables.empty()) return "";
  JsonWriter out;
  out.begin_object();
  for (const auto& [name, json] : variables) out.key(name).raw(json);
  out.end_object();
  return out.take();
}

int parse_logprobs(const JsonNode& body) {
  const bool wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, 20);
  if (top && !wanted) fail_param("top_logprobs", "top_logprobs: only with logprobs: true");
  return wanted ? static_cast<int>(top.value_or(0)) : -1;
}

void print_head(JsonWriter& out, const Identity& identity, const char* object) {
  out.begin_object().field("id", identity.id).field("object", object).field("created", identity.created);
  out.field("model", identity.model).field("system_fingerprint", identity.fingerprint);
}

}  // namespace

ChatRequest parse_chat(std::string_view text, const Bounds& bounds) {
  const JsonNode body = JsonNode::parse_request(text);
  ChatRequest out;
  out.model = body.string("model").value_or("");
  const auto messages = parse_messages(body);
  out.message_count = messages.size();
  out.last_is_assistant = messages.back().role == "assistant";
  if (out.last_is_assistant) out.last_content = messages.back().content;
  out.messages_json = print_messages(messages);
  out.template_kwargs_json = parse_kwargs(body);
  out.add_generation_prompt = body.boolean("add_generation_prompt");
  out.continue_final_message = body.boolean("continue_final_message");
  if (out.continue_final_message.value_or(false)) {
    if (!out.last_is_assistant) {
      fail_param("continue_final_message", "continue_final_message: the last message is not the assistant's");
    }
    if (out.add_generation_prompt.value_or(false)) {
      fail_param("continue_final_message", "continue_final_message: excludes add_generation_prompt");
    }
  }
  out.echo = body.boolean("echo").value_or(false);
  out.timings_per_token = body.boolean("timings_per_token").value_or(false);
  out.reasoning_control = body.boolean("reasoning_control").value_or(false);
  const auto cap = body.integer("max_completion_tokens", 1, INT32_MAX);
  const auto older_cap = body.integer("max_tokens", 1, INT32_MAX);
  if (cap || older_cap) out.max_tokens = static_cast<int>(cap ? *cap : *older_cap);
  out.n = static_cast<int>(body.integer("n", 1, bounds.max_choices).value_or(1));
  out.logprobs = parse_logprobs(body);
  out.sampling = parse_sampling(body, bounds);
  out.stream = parse_stream(body);
  parse_tools(body, out);
  out.form = parse_output_form(body);
  out.reasoning_format = parse_reasoning_format(body);
  out.thought_budget = parse_thought_budget(body);
  refuse_unsupported(body);
  out.echoed = parse_inert(body);
  if (const auto ping = body.integer("sse_ping_interval", -1, 86400))
    out.ping_interval = static_cast<int>(*ping);
  out.ignored = body.unknown();
  return out;
}

std::string print_chat(const ChatAnswer& answer, const std::string& alias) {
  JsonWriter out;
  print_head(out, answer.identity, "chat.completion");
  out.key("choices").begin_array();
  for (const auto& choice : answer.choices) {
    out.begin_object().field("index", choice.index).key("message").begin_object();
    out.field("role", "assistant").key("content");
    choice.content.empty() && (!choice.calls.empty() || !choice.reasoning.empty())
        ? out.null()
        : out.value(choice.content);
    if (!choice.reasoning.empty()) {
      out.field("reasoning_content", choice.reasoning);
      if (!alias.empty()) out.field(alias, choice.reasoning);
    }
    if (!choice.calls.empty()) {
      out.key("tool_calls").begin_array();
      for (const auto& call : choice.calls) {
        out.begin_object().field("id", call.id).field("type", "function").key("function").begin_object();
        out.field("name", call.name).field("arguments", call.arguments).end_object().end_object();
      }
      out.end_array();
    }
    out.key("refusal").null().end_object();
    out.key("logprobs");
    choice.with_logprobs ? print_chat_logprobs(out, choice.logprobs) : void(out.null());
    out.field("finish_reason", choice.finish_reason).end_object();
  }
  out.end_array().key("usage");
  print_usage(out, answer.usage);
  out.key("timings");
  print_timings(out, answer.timings);
  if (!answer.warnings_json.empty()) out.key("warnings").raw(answer.warnings_json);
  if (!answer.echoed.service_tier.empty()) out.field("service_tier", answer.echoed.service_tier);
  if (!answer.echoed.metadata_json.empty()) out.key("metadata").raw(answer.echoed.metadata_json);
  out.end_object();
  return out.take();
}

std::string print_chat_chunk(const Identity& identity, const ChatChunk& chunk, bool usage_null,
                             const std::string& alias) {
  JsonWriter out;
  print_head(out, identity, "chat.completion.chunk");
  out.key("choices").begin_array().begin_object().field("index", chunk.index).key("delta").begin_object();
  if (chunk.role) out.field("role", "assistant").field("content", "");
  if (!chunk.reasoning.empty()) {
    out.field("reasoning_content", chunk.reasoning);
    if (!alias.empty()) out.field(alias, chunk.reasoning);
  } else if (chunk.call || chunk.arguments) {
    out.key("tool_calls").begin_array().begin_object().field("index", chunk.call_index);
    if (chunk.call) out.field("id", chunk.call->id).field("type", "function");
    out.key("function").begin_object();
    if (chunk.call) out.field("name", chunk.call->name);
    out.field("arguments", chunk.arguments ? *chunk.arguments : std::string())
        .end_object()
        .end_object()
        .end_array();
  } else if (!chunk.role && (!chunk.content.empty() || chunk.logprobs)) {
    out.field("content", chunk.content);
  }
  out.end_object().key("logprobs");
  chunk.logprobs ? print_chat_logprobs(out, *chunk.logprobs) : void(out.null());
  out.key("finish_reason");
  chunk.finish_reason.empty() ? out.null() : out.value(chunk.finish_reason);
  out.end_object().end_array();
  if (usage_null) out.key("usage").null();
  if (chunk.progress) {
    out.key("prompt_progress");
    print_progress(out, *chunk.progress);
  }
  if (chunk.timings) {
    out.key("timings");
    print_timings(out, *chunk.timings);
  }
  if (!chunk.warnings_json.empty()) out.key("warnings").raw(chunk.warnings_json);
  out.end_object();
  return out.take();
}

std::string print_chat_usage_chunk(const Identity& identity, const Usage& usage,
                                   const TimingFigures& timings) {
  JsonWriter out;
  print_head(out, identity, "chat.completion.chunk");
  out.key("choices").begin_array().end_array().key("usage");
  print_usage(out, usage);
  out.key("timings");
  print_timings(out, timings);
  out.end_object();
  return out.take();
}

}  // namespace mlxcel::openai
