#include <algorithm>
#include <iterator>

#include "api/error.h"
#include "api/json_node.h"
#include "api/openai/responses.h"
#include "api/output_form.h"
#include "api/tools.h"

namespace mlxcel::openai {
namespace {

// The others are of items that never come here, or are empty (server.md 5.4).
constexpr std::string_view kIncludes[] = {
    "message.output_text.logprobs",  "reasoning.encrypted_content",
    "message.input_image.image_url", "file_search_call.results",
    "web_search_call.results",       "web_search_call.action.sources",
    "code_interpreter_call.outputs", "computer_call_output.output.image_url"};

constexpr const char* kCustomSchema =
    R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"]})";

std::string text_of(const JsonNode& content) {
  if (content.kind() == JsonKind::string) return content.string();
  if (content.kind() != JsonKind::array) content.wrong("a string or an array of parts");
  std::string out;
  bool first = true;
  for (const auto& part : content.items()) {
    if (part.kind() != JsonKind::object) part.wrong("an object with a type");
    const auto type = part.string("type").value_or("");
    if (type == "input_image" || type == "image_url") {
      if (part.has("file_id") && !part.has("image_url"))
        fail_param(part.path(), "{}: files are not kept here; send image_url", part.path());
      refuse_param(501, "not_supported_error", part.path(),
                   "{}: this model takes text only, found a part of type {}", part.path(), type);
    }
    if (type == "input_audio" || type == "input_video") {
      refuse_param(501, "not_supported_error", part.path(),
                   "{}: this model takes text only, found a part of type {}", part.path(), type);
    }
    const bool text = type == "input_text" || type == "output_text" || type == "text" || type == "refusal" ||
                      type == "reasoning_text" || type == "summary_text";
    if (!text)
      fail_param(part.path() + ".type", "{}.type: \"{}\" is not a text part", part.path(),
                 type.substr(0, 64));
    const char* key = type == "refusal" ? "refusal" : "text";
    const auto value = part.string(key);
    if (!value) fail_param(part.path() + "." + key, "{}.{}: expected a string", part.path(), key);
    if (!first) out += '\n';
    out += *value;
    first = false;
  }
  return out;
}

std::string required_text(const JsonNode& item, const char* key) {
  const auto text = item.string(key);
  if (!text) fail_param(item.path() + "." + key, "{}.{}: expected a string", item.path(), key);
  return *text;
}

/// Input items to turns: what an assistant said, thought and called in a row is one turn.
class Turns {
 public:
  Turns(ResponseRequest& out, const ItemLookup& kept) : out_(out), kept_(kept) {}

  void add(const JsonNode& item) {
    if (item.kind() != JsonKind::object) item.wrong("an item (an object)");
    const auto type = item.string("type").value_or("message");
    if (type == "message") return message(item);
    if (type == "function_call") {
      const auto arguments = required_text(item, "arguments");
      return call(required_text(item, "call_id"), required_text(item, "name"), json_or_text(arguments));
    }
    if (type == "custom_tool_call") {
      JsonWriter input;
      input.begin_object().field("input", required_text(item, "input")).end_object();
      return call(required_text(item, "call_id"), required_text(item, "name"), input.take());
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      flush();
      const auto output = item.find("output");
      if (!output) fail_param(item.path() + ".output", "{}.output: expected a string or parts", item.path());
      JsonWriter turn;
      turn.begin_object().field("role", "tool").field("tool_call_id", required_text(item, "call_id"));
      turn.field("content", text_of(*output)).end_object();
      out_.turns.push_back(turn.take());
      last_empty_ = false;
      return;
    }
    if (type == "reasoning") {
      open_ = true;
      for (const char* key : {"content", "summary"}) {
        const auto parts = item.find(key);
        if (parts && thought_.empty()) thought_ = text_of(*parts);
      }
      return;
    }
    if (type == "item_reference") {
      const auto found = kept_ ? kept_(required_text(item, "id")) : std::nullopt;
      if (found) return add(JsonNode::parse(*found));
      refuse_param(404, "not_found_error", item.path(), "{}: no item {} is kept", item.path(),
                   item.string("id").value_or("").substr(0, 80));
    }
    fail_param(item.path() + ".type", "{}.type: \"{}\" is not a known item", item.path(), type.substr(0, 64));
  }

  void finish() {
    out_.last_is_assistant = open_ && calls_.empty();
    out_.last_content = text_;
    if (open_) last_empty_ = text_.empty() && calls_.empty() && thought_.empty();
    flush();
    if (out_.turns.empty() || last_empty_) fail_param("input", "input: there is nothing to answer");
  }

 private:
  static std::string json_or_text(const std::string& text) {
    try {
      return JsonNode::parse(text).dump();
    } catch (const Error&) {
      return JsonWriter().value(text).take();
    }
  }

  void message(const JsonNode& item) {
    const auto role = required_text(item, "role");
    const auto content = item.find("content");
    if (!content) fail_param(item.path() + ".content", "{}.content: expected a string or parts", item.path());
    const std::string text = text_of(*content);
    if (role == "assistant") {
      if (!text_.empty() || !calls_.empty()) flush();
      open_ = true;
      text_ = text;
      return;
    }
    if (role != "user" && role != "system" && role != "developer") {
      fail_param(item.path() + ".role",
                 "{}.role: expected user, assistant, system or developer, found \"{}\"", item.path(),
                 role.substr(0, 64));
    }
    flush();
    JsonWriter turn;
    turn.begin_object()
        .field("role", role == "developer" ? "system" : role)
        .field("content", text)
        .end_object();
    out_.turns.push_back(turn.take());
    last_empty_ = text.empty();
  }

  void call(const std::string& id, const std::string& name, const std::string& arguments) {
    open_ = true;
    JsonWriter out;
    out.begin_object()
        .field("id", id)
        .field("type", "function")
        .key("function")
        .begin_object()
        .field("name", name);
    out.key("arguments").raw(arguments).end_object().end_object();
    calls_.push_back(out.take());
  }

  void flush() {
    if (!open_) return;
    JsonWriter turn;
    turn.begin_object().field("role", "assistant").key("content");
    text_.empty() && !calls_.empty() ? turn.null() : turn.value(text_);
    if (!thought_.empty()) turn.field("reasoning_content", thought_);
    if (!calls_.empty()) {
      turn.key("tool_calls").begin_array();
      for (const auto& each : calls_) turn.raw(each);
      turn.end_array();
    }
    turn.end_object();
    out_.turns.push_back(turn.take());
    open_ = false;
    text_.clear();
    thought_.clear();
    calls_.clear();
  }

  ResponseRequest& out_;
  const ItemLookup& kept_;
  bool open_ = false, last_empty_ = true;
  std::string text_, thought_;
  std::vector<std::string> calls_;
};

void parse_input(const JsonNode& body, ResponseRequest& out, const ItemLookup& kept) {
  const auto input = body.find("input");
  if (!input) fail_param("input", "input: expected a string or an array of items, found none");
  if (input->kind() == JsonKind::string) {
    if (input->string().empty()) fail_param("input", "input: there is nothing to answer");
    JsonWriter turn;
    turn.begin_object().field("role", "user").field("content", input->string()).end_object();
    out.turns.push_back(turn.take());
    return;
  }
  if (input->kind() != JsonKind::array) input->wrong("a string or an array of items");
  Turns turns(out, kept);
  for (const auto& item : input->items()) turns.add(item);
  turns.finish();
}

void parse_response_tools(const JsonNode& body, ResponseRequest& out) {
  JsonWriter tools;
  tools.begin_array();
  if (const auto list = body.find("tools")) {
    if (list->kind() != JsonKind::array) list->wrong("an array of tools");
    if (list->size() > kMaxTools) fail_param("tools", "tools: at most {}, found {}", kMaxTools, list->size());
    out.echoed.emplace_back("tools", list->dump());
    for (const auto& tool : list->items()) {
      if (tool.kind() != JsonKind::object) tool.wrong("an object with a type");
      const auto type = required_text(tool, "type");
      if (type != "function" && type != "custom") {
        out.warnings.push_back(
            {"tool_dropped", "tools of type " + type.substr(0, 64) + " can only be run by their vendor"});
        continue;
      }
      const auto inner = tool.find("function");  // the chat spelling is taken too
      const JsonNode& source = inner ? *inner : tool;
      const auto name = required_text(source, "name");
      check_tool_name(name, source.path() + ".name");
      const auto parameters = source.find("parameters");
      if (parameters && parameters->kind() != JsonKind::object)
        parameters->wrong("a JSON schema (an object)");
      const bool custom = type == "custom";
      if (custom) out.custom_tools.push_back(name);
      const std::string schema = custom ? kCustomSchema : parameters ? parameters->dump() : std::string();
      tools.raw(print_function_tool(name, source.string("description"), schema,
                                    source.boolean("strict").value_or(false)));
      out.tool_names.push_back(name);
    }
  } else {
    out.echoed.emplace_back("tools", "[]");
  }
  tools.end_array();
  if (!out.tool_names.empty()) out.tools_json = tools.take();
  out.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
  out.echoed.emplace_back("parallel_tool_calls", out.parallel_calls ? "true" : "false");
  const auto choice = body.find("tool_choice");
  out.echoed.emplace_back("tool_choice", choice ? choice->dump() : "\"auto\"");
  if (choice && choice->kind() == JsonKind::string) {
    const auto word = choice->string();
    if (word == "required")
      out.tool_choice = ToolChoice::required;
    else if (word == "none")
      out.tool_choice = ToolChoice::none;
    else if (word != "auto")
      fail_param("tool_choice", "tool_choice: expected auto, none, required or a tool, found \"{}\"",
                 word.substr(0, 64));
  } else if (choice) {
    if (choice->kind() != JsonKind::object) choice->wrong("a string or an object");
    out.tool_choice = ToolChoice::named;
    out.named_tool = required_text(*choice, "name");
  }
  settle_tools(out, "tool_choice");
}

void parse_reasoning(const JsonNode& body, ResponseRequest& out) {
  const auto reasoning = body.find("reasoning");
  out.echoed.emplace_back("reasoning", reasoning ? reasoning->dump() : R"({"effort":null,"summary":null})");
  if (!reasoning) return;
  if (reasoning->kind() != JsonKind::object) reasoning->wrong("an object");
  reasoning->string("summary");
  reasoning->string("generate_summary");
  const auto effort = reasoning->find("effort");
  if (!effort) return;
  std::string word = effort->kind() == JsonKind::string ? effort->string() : effort->dump();
  JsonWriter kwargs;
  kwargs.begin_object();
  if (word == "none" || word == "off" || word == "disabled" || word == "false" || word == "0") {
    for (const char* key : {"enable_thinking", "thinking"}) kwargs.field(key, false);
  } else {
    for (const char* key : {"reasoning_effort", "reasoning_strength"}) kwargs.field(key, word);
  }
  kwargs.end_object();
  out.template_kwargs_json = kwargs.take();
}

void parse_memory(const JsonNode& body, ResponseRequest& out) {
  out.previous_response_id = body.string("previous_response_id").value_or("");
  if (const auto conversation = body.find("conversation")) {
    if (conversation->kind() == JsonKind::string)
      out.conversation_id = conversation->string();
    else if (conversation->kind() == JsonKind::object)
      out.conversation_id = conversation->string("id").value_or("");
    else
      conversation->wrong("an id or an object");
    out.new_conversation = out.conversation_id.empty();
  }
  if (!out.previous_response_id.empty() && (out.new_conversation || !out.conversation_id.empty())) {
    fail_param("previous_response_id", "previous_response_id: excludes conversation");
  }
  out.store = body.boolean("store").value_or(true);
  if (body.boolean("background").value_or(false))
    fail_param("background", "background: not supported; stream instead");
}

void echo(const JsonNode& body, ResponseRequest& out, const char* key, const char* otherwise) {
  const auto node = body.find(key);
  out.echoed.emplace_back(key, node ? node->dump() : otherwise);
}

}  // namespace

ResponseRequest parse_response(std::string_view text, const Bounds& bounds, bool counting,
                               const ItemLookup& kept) {
  const JsonNode body = JsonNode::parse_request(text);
  ResponseRequest out;
  out.messages_param = "input";
  if (body.has("prompt"))
    fail_param("prompt", "prompt: no prompts are kept here; send their text as instructions and input");
  out.model = body.string("model").value_or("");
  parse_input(body, out, kept);
  out.instructions = body.string("instructions").value_or("");
  echo(body, out, "instructions", "null");
  parse_response_tools(body, out);
  parse_reasoning(body, out);
  parse_memory(body, out);
  out.echoed.emplace_back("previous_response_id", out.previous_response_id.empty()
                                                      ? "null"
                                                      : JsonWriter().value(out.previous_response_id).take());
  out.echoed.emplace_back("store", out.store ? "true" : "false");
  if (const auto format = body.find("text")) {
    if (format->kind() != JsonKind::object) format->wrong("an object");
    if (const auto inner = format->find("format")) out.form = parse_format_object(*inner);
    format->string("verbosity");
  }
  echo(body, out, "text", R"({"format":{"type":"text"}})");
  if (const auto cap = body.integer("max_output_tokens", 1, INT32_MAX))
    out.max_tokens = static_cast<int>(*cap);
  echo(body, out, "max_output_tokens", "null");
  body.integer("max_tool_calls", 0, INT32_MAX);
  out.sampling = parse_sampling(body, bounds);
  echo(body, out, "temperature", "null");
  echo(body, out, "top_p", "null");
  out.stream = !counting && body.boolean("stream").value_or(false);
  out.timings_per_token = body.boolean("timings_per_token").value_or(false);
  if (const auto include = body.find("include")) {
    for (const auto& item : include->items()) {
      const auto name = item.string();
      if (std::find(std::begin(kIncludes), std::end(kIncludes), name) == std::end(kIncludes))
        fail_param(item.path(), "{}: \"{}\" is nothing that a response includes", item.path(),
                   name.substr(0, 80));
      out.with_logprobs = out.with_logprobs || name == kIncludes[0];
    }
  }
  const auto top = body.integer("top_logprobs", 0, 20);
  out.with_logprobs = out.with_logprobs || top.value_or(0) > 0;
  if (out.with_logprobs) out.logprobs = static_cast<int>(top.value_or(0));
  const auto truncation = body.string("truncation").value_or("disabled");
  if (truncation != "disabled" && truncation != "auto") {
    fail_param("truncation", "truncation: expected disabled or auto, found \"{}\"", truncation.substr(0, 64));
  }
  out.truncate = truncation == "auto";
  echo(body, out, "truncation", "\"disabled\"");
  const auto inert = parse_inert(body);
  out.echoed.emplace_back("metadata", inert.metadata_json.empty() ? "{}" : inert.metadata_json);
  if (!inert.service_tier.empty())
    out.echoed.emplace_back("service_tier", JsonWriter().value(inert.service_tier).take());
  echo(body, out, "user", "null");
  if (const auto options = body.find("stream_options"); options && options->kind() != JsonKind::object)
    options->wrong("an object");
  refuse_unsupported(body);
  out.ignored = body.unknown();
  return out;
}

std::string conversation_json(const std::string& instructions, const std::vector<std::string>& before,
                              const std::vector<std::string>& turns) {
  JsonWriter out;
  out.begin_array();
  if (!instructions.empty())
    out.begin_object().field("role", "system").field("content", instructions).end_object();
  for (const auto* list : {&before, &turns}) {
    for (const auto& turn : *list) out.raw(turn);
  }
  out.end_array();
  return out.take();
}

bool drop_oldest(std::vector<std::string>& turns) {
  auto role = [](const std::string& turn) { return JsonNode::parse(turn).string("role").value_or(""); };
  size_t from = 0;
  while (from < turns.size() && role(turns[from]) == "system") ++from;
  size_t to = from + 1;
  while (to < turns.size() && role(turns[to]) != "user") ++to;
  if (to >= turns.size()) return false;
  turns.erase(turns.begin() + static_cast<std::ptrdiff_t>(from),
              turns.begin() + static_cast<std::ptrdiff_t>(to));
  return true;
}

}  // namespace mlxcel::openai
