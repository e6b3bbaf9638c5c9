#include "api/anthropic/messages.h"

#include <optional>

#include "api/error.h"
#include "api/json_node.h"
#include "api/json_writer.h"
#include "api/openai/answer.h"
#include "api/output_form.h"
#include "api/tools.h"

namespace mlxcel::anthropic {
namespace {

constexpr size_t kMaxStops = 64;
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

std::string required_text(const JsonNode& block, const char* key) {
  const auto text = block.string(key);
  if (!text) fail_param(block.path() + "." + key, "{}.{}: expected a string", block.path(), key);
  return *text;
}

[[noreturn]] void no_media(const JsonNode& block, const std::string& type) {
  refuse_param(501, "not_supported_error", block.path(),
               "{}: this model takes text only, found a block of type {}", block.path(), type);
}

std::string document_text(const JsonNode& block) {
  const auto source = block.find("source");
  if (!source) fail_param(block.path() + ".source", "{}.source: expected an object", block.path());
  const auto type = source->string("type").value_or("");
  if (type == "text") return required_text(*source, "data");
  if (type == "content") {
    const auto content = source->find("content");
    if (content && content->kind() == JsonKind::string) return content->string();
    std::string out;
    if (content && content->kind() == JsonKind::array) {
      for (const auto& part : content->items()) out += part.string("text").value_or("");
    }
    return out;
  }
  fail_param(source->path() + ".type", "{}.type: expected a text source, found \"{}\"", source->path(),
             type.substr(0, 64));
}

/// A string, or text blocks joined by line breaks; other blocks are refused.
std::string text_of(const JsonNode& content) {
  if (content.kind() == JsonKind::string) return content.string();
  if (content.kind() != JsonKind::array) content.wrong("a string or an array of blocks");
  std::string out;
  bool first = true;
  for (const auto& block : content.items()) {
    if (block.kind() != JsonKind::object) block.wrong("an object with a type");
    const auto type = block.string("type").value_or("");
    std::string text;
    if (type == "text") {
      text = required_text(block, "text");
    } else if (type == "document") {
      text = document_text(block);
    } else if (type == "image") {
      no_media(block, type);
    } else {
      fail_param(block.path() + ".type", "{}.type: \"{}\" is not a text block", block.path(),
                 type.substr(0, 64));
    }
    if (!first) out += '\n';
    out += text;
    first = false;
  }
  return out;
}

/// The system text without the line that differs with every request of a coding agent.
std::string system_text(const JsonNode& node) {
  std::string out = text_of(node);
  if (!out.starts_with(kBillingLine)) return out;
  const size_t end = out.find('\n');
  return end == std::string::npos ? "" : out.substr(end + 1);
}

class Turns {
 public:
  Turns() { out_.begin_array(); }

  void system(const std::string& text) { plain("system", text); }

  void user(const JsonNode& message, const JsonNode& content) {
    if (content.kind() == JsonKind::string) return plain("user", content.string());
    if (content.kind() != JsonKind::array) content.wrong("a string or an array of blocks");
    // Results come before the text of the same turn, whatever their order in it.
    std::string text;
    bool any = false;
    for (const auto& block : content.items()) {
      if (block.kind() != JsonKind::object) block.wrong("an object with a type");
      const auto type = block.string("type").value_or("");
      if (type == "tool_result") {
        const auto result = block.find("content");
        std::string said = result ? text_of(*result) : "";
        if (block.boolean("is_error").value_or(false) && said.empty()) said = "error";
        out_.begin_object().field("role", "tool").field("tool_call_id", required_text(block, "tool_use_id"));
        out_.field("content", said).end_object();
        last_empty_ = false;
        last_assistant_ = false;
        ++count_;
        continue;
      }
      std::string part;
      if (type == "text")
        part = required_text(block, "text");
      else if (type == "document")
        part = document_text(block);
      else if (type == "image")
        no_media(block, type);
      else
        fail_param(block.path() + ".type", "{}.type: \"{}\" is not a known block", block.path(),
                   type.substr(0, 64));
      text += (any ? "\n" : "") + part;
      any = true;
    }
    if (any || content.size() == 0) plain("user", text);
    (void)message;
  }

  void assistant(const JsonNode& content) {
    if (content.kind() == JsonKind::string) return plain("assistant", content.string());
    if (content.kind() != JsonKind::array) content.wrong("a string or an array of blocks");
    std::string text, thought;
    JsonWriter calls;
    calls.begin_array();
    bool any = false;
    for (const auto& block : content.items()) {
      if (block.kind() != JsonKind::object) block.wrong("an object with a type");
      const auto type = block.string("type").value_or("");
      if (type == "text") {
        text += required_text(block, "text");
      } else if (type == "thinking") {
        thought += required_text(block, "thinking");
      } else if (type == "tool_use") {
        const auto input = block.find("input");
        calls.begin_object()
            .field("id", required_text(block, "id"))
            .field("type", "function")
            .key("function");
        calls.begin_object().field("name", required_text(block, "name")).key("arguments");
        if (input && input->kind() != JsonKind::object) input->wrong("an object");
        calls.raw(input ? input->dump() : "{}").end_object().end_object();
        any = true;
      } else if (type != "redacted_thinking") {
        fail_param(block.path() + ".type", "{}.type: \"{}\" is not a known block", block.path(),
                   type.substr(0, 64));
      }
    }
    calls.end_array();
    out_.begin_object().field("role", "assistant").key("content");
    text.empty() && any ? out_.null() : out_.value(text);
    if (!thought.empty()) out_.field("reasoning_content", thought);
    if (any) out_.key("tool_calls").raw(calls.text());
    out_.end_object();
    last_empty_ = text.empty() && !any && thought.empty();
    last_assistant_ = true;
    last_text_ = text;
    ++count_;
  }

  std::string take() {
    out_.end_array();
    return out_.take();
  }
  bool last_assistant() const { return last_assistant_; }
  bool last_empty() const { return last_empty_; }
  const std::string& last_text() const { return last_text_; }

 private:
  void plain(const char* role, const std::string& text) {
    out_.begin_object().field("role", role).field("content", text).end_object();
    last_assistant_ = std::string_view(role) == "assistant";
    last_empty_ = text.empty();
    last_text_ = text;
    ++count_;
  }
  JsonWriter out_;
  bool last_assistant_ = false, last_empty_ = true;
  std::string last_text_;
  int count_ = 0;
};

void parse_turns(const JsonNode& body, MessageRequest& out) {
  Turns turns;
  if (const auto system = body.find("system")) {
    if (const auto text = system_text(*system); !text.empty()) turns.system(text);
  }
  const auto messages = body.find("messages");
  if (!messages) fail_param("messages", "messages: expected a non-empty array, found none");
  if (messages->kind() != JsonKind::array) messages->wrong("a non-empty array");
  if (messages->size() == 0) fail_param("messages", "messages: expected at least one message, found none");
  std::string path;
  for (const auto& message : messages->items()) {
    if (message.kind() != JsonKind::object) message.wrong("an object with role and content");
    const auto role = message.string("role").value_or("");
    const auto content = message.find("content");
    path = message.path() + ".content";
    if (!content) fail_param(path, "{}: expected a string or an array of blocks", path);
    if (role == "user")
      turns.user(message, *content);
    else if (role == "assistant")
      turns.assistant(*content);
    else if (role == "system")
      turns.system(text_of(*content));
    else
      fail_param(message.path() + ".role", "{}.role: expected user, assistant or system, found \"{}\"",
                 message.path(), role.substr(0, 64));
  }
  if (turns.last_empty()) fail_param(path, "{}: the last message is empty; there is nothing to answer", path);
  out.last_is_assistant = turns.last_assistant();
  if (out.last_is_assistant) out.last_content = turns.last_text();
  out.messages_json = turns.take();
}

void parse_tools(const JsonNode& body, MessageRequest& out) {
  JsonWriter tools;
  tools.begin_array();
  if (const auto list = body.find("tools")) {
    if (list->kind() != JsonKind::array) list->wrong("an array of tools");
    if (list->size() > kMaxTools) fail_param("tools", "tools: at most {}, found {}", kMaxTools, list->size());
    for (const auto& tool : list->items()) {
      if (tool.kind() != JsonKind::object) tool.wrong("an object with name and input_schema");
      const auto type = tool.string("type").value_or("custom");
      const auto name = required_text(tool, "name");
      if (type != "custom") {
        out.warnings.push_back({"tool_dropped", "the tool " + name.substr(0, 64) + " of type " +
                                                    type.substr(0, 64) + " can only be run by its vendor"});
        continue;
      }
      check_tool_name(name, tool.path() + ".name");
      const auto schema = tool.find("input_schema");
      if (!schema)
        fail_param(tool.path() + ".input_schema", "{}.input_schema: expected a JSON schema", tool.path());
      if (schema->kind() != JsonKind::object) schema->wrong("a JSON schema (an object)");
      tools.raw(print_function_tool(name, tool.string("description"), schema->dump(),
                                    tool.boolean("strict").value_or(false)));
      out.tool_names.push_back(name);
    }
  }
  tools.end_array();
  if (!out.tool_names.empty()) out.tools_json = tools.take();
  if (const auto choice = body.find("tool_choice")) {
    if (choice->kind() != JsonKind::object) choice->wrong("an object with a type");
    const auto type = choice->string("type").value_or("");
    if (type == "any")
      out.tool_choice = ToolChoice::required;
    else if (type == "none")
      out.tool_choice = ToolChoice::none;
    else if (type == "tool") {
      out.tool_choice = ToolChoice::named;
      out.named_tool = required_text(*choice, "name");
    } else if (type != "auto") {
      fail_param("tool_choice.type", "tool_choice.type: expected auto, any, tool or none, found \"{}\"",
                 type.substr(0, 64));
    }
    out.parallel_calls = !choice->boolean("disable_parallel_tool_use").value_or(false);
  }
  settle_tools(out, "tool_choice");
}

void parse_thinking(const JsonNode& body, MessageRequest& out) {
  const auto thinking = body.find("thinking");
  if (!thinking) return;
  if (thinking->kind() != JsonKind::object) thinking->wrong("an object with a type");
  const auto type = thinking->string("type").value_or("");
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    fail_param("thinking.type", "thinking.type: expected enabled, adaptive or disabled, found \"{}\"",
               type.substr(0, 64));
  }
  const bool on = type != "disabled";
  if (type == "enabled") {
    const auto budget = thinking->integer("budget_tokens", 1, INT32_MAX);
    if (!budget)
      fail_param("thinking.budget_tokens", "thinking.budget_tokens: expected an integer of at least 1");
    if (out.max_tokens && *budget >= *out.max_tokens) {
      fail_param("thinking.budget_tokens", "thinking.budget_tokens: {} is not below max_tokens {}", *budget,
                 *out.max_tokens);
    }
    out.thought_budget = static_cast<int>(*budget);
  }
  JsonWriter kwargs;
  kwargs.begin_object().field("enable_thinking", on).field("thinking", on).end_object();
  out.template_kwargs_json = kwargs.take();
}

std::vector<std::string> parse_stops(const JsonNode& body) {
  std::vector<std::string> out;
  const auto list = body.find("stop_sequences");
  if (!list) return out;
  if (list->kind() != JsonKind::array) list->wrong("an array of strings");
  if (list->size() > kMaxStops)
    fail_param("stop_sequences", "stop_sequences: at most {}, found {}", kMaxStops, list->size());
  for (const auto& item : list->items()) {
    out.push_back(item.string());
    if (out.back().empty()) fail_param(item.path(), "{}: a stop string must not be empty", item.path());
  }
  return out;
}

void print_usage(JsonWriter& out, const Usage& usage) {
  out.begin_object().field("input_tokens", usage.input_tokens).field("cache_creation_input_tokens", 0);
  out.field("cache_read_input_tokens", usage.cached_tokens)
      .field("output_tokens", usage.output_tokens)
      .end_object();
}

void print_block(JsonWriter& out, const Block& block) {
  out.begin_object();
  switch (block.kind) {
    case Block::Kind::thinking:
      out.field("type", "thinking").field("thinking", block.text).field("signature", "");
      break;
    case Block::Kind::text:
      out.field("type", "text").field("text", block.text);
      break;
    case Block::Kind::tool_use:
      out.field("type", "tool_use").field("id", block.call.id).field("name", block.call.name).key("input");
      out.raw(whole_arguments(block.call.arguments));
      break;
  }
  out.end_object();
}

void print_body(JsonWriter& out, const Message& message) {
  out.begin_object().field("id", message.id).field("type", "message").field("role", "assistant");
  out.field("model", message.model).key("content").begin_array();
  for (const auto& block : message.blocks) print_block(out, block);
  out.end_array().key("stop_reason");
  message.stop_reason.empty() ? out.null() : out.value(message.stop_reason);
  out.key("stop_sequence");
  message.stop_sequence.empty() ? out.null() : out.value(message.stop_sequence);
  out.key("usage");
  print_usage(out, message.usage);
  if (!message.warnings_json.empty()) out.key("warnings").raw(message.warnings_json);
  out.end_object();
}

std::string named(const char* type, JsonWriter& data) {
  return std::string("event: ") + type + "\ndata: " + data.text() + "\n\n";
}

JsonWriter head(const char* type) {
  JsonWriter out;
  out.begin_object().field("type", type);
  return out;
}

std::string delta(int index, const char* type, const char* key, const std::string& text) {
  auto out = head("content_block_delta");
  out.field("index", index)
      .key("delta")
      .begin_object()
      .field("type", type)
      .field(key, text)
      .end_object()
      .end_object();
  return named("content_block_delta", out);
}

}  // namespace

MessageRequest parse_messages(std::string_view text, const openai::Bounds& bounds, bool counting) {
  const JsonNode body = JsonNode::parse_request(text);
  MessageRequest out;
  out.model = body.string("model").value_or("");
  const auto cap = body.integer("max_tokens", 1, INT32_MAX);
  if (!cap && !counting) fail_param("max_tokens", "max_tokens: required, an integer of at least 1");
  if (cap) out.max_tokens = static_cast<int>(*cap);
  for (const char* key : {"mcp_servers", "container"}) {
    if (const auto node = body.find(key); node && !(node->kind() == JsonKind::array && node->size() == 0)) {
      fail_param(key, "{}: not supported; this server runs no tools", key);
    }
  }
  parse_turns(body, out);
  parse_tools(body, out);
  parse_thinking(body, out);
  if (const auto format = body.find("output_format")) out.form = parse_format_object(*format);
  if (const auto config = body.find("output_config")) {
    if (config->kind() != JsonKind::object) config->wrong("an object");
    if (const auto format = config->find("format")) out.form = parse_format_object(*format);
    if (const auto effort = config->string("effort")) {
      JsonWriter variables;
      variables.begin_object();
      for (const char* key : {"reasoning_effort", "reasoning_strength"}) variables.field(key, *effort);
      variables.end_object();
      out.template_kwargs_json = openai::merge_objects(out.template_kwargs_json, variables.take());
    }
  }
  out.sampling.stop = parse_stops(body);
  out.sampling.adapters = openai::parse_adapters(body);
  if (const auto x = body.number("temperature", 0, 1)) out.sampling.temperature = static_cast<float>(*x);
  if (const auto x = body.number("top_p", 0, 1)) out.sampling.top_p = static_cast<float>(*x);
  if (const auto x = body.integer("top_k", 0, INT32_MAX)) out.sampling.top_k = static_cast<int>(*x);
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX)) {
    out.sampling.seed = openai::fold_seed(*seed);
    out.sampling.seed_given = true;
  }
  out.stream = body.boolean("stream").value_or(false);
  out.service_tier = body.string("service_tier").value_or("");
  if (const auto metadata = body.find("metadata")) {
    if (metadata->kind() != JsonKind::object) metadata->wrong("an object");
    metadata->string("user_id");
  }
  if (const auto kwargs = body.find("chat_template_kwargs")) {
    if (kwargs->kind() != JsonKind::object) kwargs->wrong("an object");
    out.template_kwargs_json = openai::merge_objects(out.template_kwargs_json, kwargs->dump());
  }
  if (const auto management = body.find("context_management");
      management && management->kind() != JsonKind::object)
    management->wrong("an object");
  out.ignored = body.unknown();
  (void)bounds;
  return out;
}

std::string stop_reason(const std::string& finish, const std::string& stop_string) {
  if (finish == "length") return "max_tokens";
  if (finish == "tool_calls") return "tool_use";
  return stop_string.empty() ? "end_turn" : "stop_sequence";
}

std::string print_message(const Message& message) {
  JsonWriter out;
  print_body(out, message);
  return out.take();
}

std::string event_message_start(const Message& message) {
  auto out = head("message_start");
  out.key("message");
  print_body(out, message);
  out.end_object();
  return named("message_start", out);
}

std::string event_ping() {
  auto out = head("ping");
  out.end_object();
  return named("ping", out);
}

std::string event_block_start(int index, const Block& block) {
  auto out = head("content_block_start");
  out.field("index", index).key("content_block");
  print_block(out, block);
  out.end_object();
  return named("content_block_start", out);
}

std::string event_text(int index, Block::Kind kind, const std::string& text) {
  return kind == Block::Kind::thinking ? delta(index, "thinking_delta", "thinking", text)
                                       : delta(index, "text_delta", "text", text);
}
std::string event_input(int index, const std::string& json) {
  return delta(index, "input_json_delta", "partial_json", json);
}
std::string event_signature(int index) { return delta(index, "signature_delta", "signature", ""); }

std::string event_block_stop(int index) {
  auto out = head("content_block_stop");
  out.field("index", index).end_object();
  return named("content_block_stop", out);
}

std::string event_message_delta(const Message& message) {
  auto out = head("message_delta");
  out.key("delta").begin_object().field("stop_reason", message.stop_reason).key("stop_sequence");
  message.stop_sequence.empty() ? out.null() : out.value(message.stop_sequence);
  out.end_object().key("usage");
  print_usage(out, message.usage);
  if (!message.warnings_json.empty()) out.key("warnings").raw(message.warnings_json);
  out.end_object();
  return named("message_delta", out);
}

std::string event_message_stop() {
  auto out = head("message_stop");
  out.end_object();
  return named("message_stop", out);
}

}  // namespace mlxcel::anthropic
