#include "api/tools.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "api/error.h"
#include "api/json_writer.h"
#include "text/reply/json_prefix.h"

namespace mlxcel {
namespace {

std::string content_of(const JsonNode& message) {
  const auto content = message.find("content");
  return content && content->kind() == JsonKind::string ? content->string() : "";
}

/// A message with another role and content; its other members stay behind.
void print_plain(JsonWriter& out, std::string_view role, const std::string& content) {
  out.begin_object().field("role", role).field("content", content).end_object();
}

std::string instruction(const std::string& tools_json) {
  std::string out =
      "# Tools\n\nYou may call functions to help with the user's request. Their signatures, as JSON, "
      "are:\n<tools>";
  for (const auto& tool : JsonNode::parse(tools_json).items()) out += "\n" + tool.dump();
  out +=
      "\n</tools>\n\nFor each call, write one JSON object with the function's name and its arguments inside "
      "tags:\n"
      "<tool_call>\n{\"name\": <function name>, \"arguments\": <arguments as an object>}\n</tool_call>";
  return out;
}

}  // namespace

std::string print_warnings(const std::vector<Warning>& warnings) {
  if (warnings.empty()) return "";
  JsonWriter out;
  out.begin_array();
  for (const auto& w : warnings)
    out.begin_object().field("type", w.type).field("message", w.message).end_object();
  out.end_array();
  return out.take();
}

void check_tool_name(const std::string& name, const std::string& path) {
  const bool fine = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
  if (!fine)
    fail_param(path, "{}: expected 1 to 64 letters, digits, _ or -, found \"{}\"", path, name.substr(0, 80));
}

std::string print_function_tool(const std::string& name, const std::optional<std::string>& description,
                                const std::string& parameters_json, bool strict) {
  JsonWriter out;
  out.begin_object().field("type", "function").key("function").begin_object().field("name", name);
  if (description) out.field("description", *description);
  out.key("parameters")
      .raw(parameters_json.empty() ? R"({"type":"object","properties":{}})" : parameters_json);
  if (strict) out.field("strict", true);
  out.end_object().end_object();
  return out.take();
}

std::string tools_as_shown(const std::string& tools_json) {
  if (tools_json.empty()) return "";
  bool any = false;
  JsonWriter out;
  out.begin_array();
  for (const auto& tool : JsonNode::parse(tools_json).items()) {
    const auto function = tool.find("function");
    if (!function || !function->has("strict")) {
      out.raw(tool.dump());
      continue;
    }
    any = true;
    out.begin_object().field("type", "function").key("function").begin_object();
    for (const auto& [name, value] : function->members())
      if (name != "strict") out.key(name).raw(value.dump());
    out.end_object().end_object();
  }
  out.end_array();
  return any ? out.take() : tools_json;
}

void parse_tools(const JsonNode& body, ChatSpec& spec) {
  if (body.has("functions")) fail_param("functions", "functions: not supported; `tools` is its successor");
  if (body.has("function_call")) {
    fail_param("function_call", "function_call: not supported; `tool_choice` is its successor");
  }
  spec.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
  JsonWriter out;
  out.begin_array();
  if (const auto tools = body.find("tools")) {
    if (tools->kind() != JsonKind::array) tools->wrong("an array of tools");
    if (tools->size() > kMaxTools)
      fail_param("tools", "tools: at most {}, found {}", kMaxTools, tools->size());
    for (const auto& tool : tools->items()) {
      if (tool.kind() != JsonKind::object) tool.wrong("an object with type and function");
      const auto type = tool.string("type").value_or("function");
      if (type != "function") {
        fail_param(tool.path() + ".type", "{}.type: expected \"function\", found \"{}\"", tool.path(),
                   type.substr(0, 64));
      }
      const auto function = tool.find("function");
      if (!function) fail_param(tool.path() + ".function", "{}.function: expected an object", tool.path());
      const auto name = function->string("name");
      if (!name) fail_param(function->path() + ".name", "{}.name: expected a string", function->path());
      check_tool_name(*name, function->path() + ".name");
      const auto parameters = function->find("parameters");
      if (parameters && parameters->kind() != JsonKind::object)
        parameters->wrong("a JSON schema (an object)");
      out.raw(print_function_tool(*name, function->string("description"),
                                  parameters ? parameters->dump() : "",
                                  function->boolean("strict").value_or(false)));
      spec.tool_names.push_back(*name);
    }
  }
  out.end_array();
  if (!spec.tool_names.empty()) spec.tools_json = out.take();
  if (const auto choice = body.find("tool_choice")) {
    if (choice->kind() == JsonKind::string) {
      const auto word = choice->string();
      if (word == "none")
        spec.tool_choice = ToolChoice::none;
      else if (word == "required" || word == "any")
        spec.tool_choice = ToolChoice::required;
      else if (word != "auto") {
        fail_param("tool_choice", "tool_choice: expected auto, none, required or a function, found \"{}\"",
                   word.substr(0, 64));
      }
    } else if (choice->kind() == JsonKind::object) {
      const auto function = choice->find("function");
      const auto name = function ? function->string("name") : choice->string("name");
      if (!name) fail_param("tool_choice.function.name", "tool_choice.function.name: expected a string");
      spec.tool_choice = ToolChoice::named;
      spec.named_tool = *name;
    } else {
      choice->wrong("a string or an object");
    }
  }
  settle_tools(spec, "tool_choice");
}

void settle_tools(ChatSpec& spec, const std::string& choice_path) {
  auto sorted = spec.tool_names;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    fail_param("tools", "tools: two tools are named {}", *twice);
  }
  const bool forced = spec.tool_choice == ToolChoice::required || spec.tool_choice == ToolChoice::named;
  if (forced && spec.tool_names.empty())
    fail_param(choice_path, "{}: there are no tools to choose from", choice_path);
  if (spec.tool_choice == ToolChoice::none) {
    spec.tools_json.clear();
    return;
  }
  if (spec.tool_choice != ToolChoice::named) return;
  const auto found = std::find(spec.tool_names.begin(), spec.tool_names.end(), spec.named_tool);
  if (found == spec.tool_names.end()) {
    fail_param(choice_path, "{}: no tool is named \"{}\"", choice_path, spec.named_tool.substr(0, 80));
  }
  // Only the named tool is rendered.
  const auto items = JsonNode::parse(spec.tools_json).items();
  spec.tools_json = "[" + items.at(static_cast<size_t>(found - spec.tool_names.begin())).dump() + "]";
  spec.tool_names = {spec.named_tool};
}

std::string with_text_contents(const std::string& messages_json) {
  JsonWriter out;
  out.begin_array();
  bool any = false;
  for (const auto& message : JsonNode::parse(messages_json).items()) {
    out.begin_object();
    for (const auto& [name, value] : message.members()) {
      const bool empty = name == "content" && value.kind() == JsonKind::null;
      any = any || empty;
      out.key(name);
      empty ? out.value("") : out.raw(value.dump());
    }
    out.end_object();
  }
  out.end_array();
  return any ? out.take() : std::string();
}

std::string whole_arguments(const std::string& arguments) {
  try {
    JsonNode::parse(arguments);
    return arguments;
  } catch (const Error&) {
    JsonPrefix json;
    json.feed(arguments + " ");  // the blank ends a number
    return json.broken() || json.begun_at() == std::string::npos ? "{}" : arguments + json.closers();
  }
}

std::string with_tool_instruction(const std::string& messages_json, const std::string& tools_json) {
  const auto root = JsonNode::parse(messages_json);
  const auto messages = root.items();
  const std::string text = tools_json.empty() ? "" : instruction(tools_json);
  size_t last_user = messages.size();
  bool has_system = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i].string("role").value_or("");
    if (role == "user") last_user = i;
    has_system = has_system || role == "system";
  }
  bool placed = text.empty();
  JsonWriter out;
  out.begin_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& message = messages[i];
    const auto role = message.string("role").value_or("");
    std::string content = content_of(message);
    if (role == "system" && !placed) {
      placed = true;
      print_plain(out, role, content.empty() ? text : content + "\n\n" + text);
    } else if (role == "assistant" && message.has("tool_calls")) {
      for (const auto& call : message.find("tool_calls")->items()) {
        const auto function = call.find("function");
        if (!function) continue;
        const auto arguments = function->find("arguments");
        JsonWriter body;
        body.begin_object().field("name", function->string("name").value_or("")).key("arguments");
        body.raw(arguments ? arguments->dump() : "{}").end_object();
        content +=
            std::string(content.empty() ? "" : "\n") + "<tool_call>\n" + body.take() + "\n</tool_call>";
      }
      print_plain(out, role, content);
    } else if (role == "tool" || role == "function") {
      print_plain(out, "user", "<tool_response>\n" + content + "\n</tool_response>");
    } else if (i == last_user && !placed && !has_system) {
      placed = true;
      print_plain(out, role, text + "\n\n" + content);
    } else {
      out.raw(message.dump());
    }
  }
  if (!placed) print_plain(out, "user", text);
  out.end_array();
  return out.take();
}

std::vector<std::string> late_system_texts(const std::string& messages_json) {
  std::vector<std::string> out;
  bool others = false;
  for (const auto& message : JsonNode::parse(messages_json).items()) {
    const auto role = message.string("role").value_or("");
    if (role != "system")
      others = true;
    else if (others && !content_of(message).empty())
      out.push_back(content_of(message));
  }
  return out;
}

std::string with_folded_system(const std::string& messages_json) {
  struct Turn {
    std::string role, content, json;
    bool changed = false;
  };
  std::vector<Turn> turns;
  std::string pending;
  bool others = false;
  for (const auto& message : JsonNode::parse(messages_json).items()) {
    Turn turn{message.string("role").value_or(""), content_of(message), message.dump()};
    const bool late = turn.role == "system" && others;
    others = others || turn.role != "system";
    if (late && turns.back().role == "user") {
      turns.back().content += "\n\n" + turn.content;
      turns.back().changed = true;
      continue;
    }
    if (late) {
      pending += (pending.empty() ? "" : "\n\n") + turn.content;
      continue;
    }
    if (turn.role == "user" && !pending.empty()) {
      turn.content = std::exchange(pending, {}) + "\n\n" + turn.content;
      turn.changed = true;
    }
    turns.push_back(std::move(turn));
  }
  if (!pending.empty()) turns.push_back({"user", pending, "", true});
  JsonWriter out;
  out.begin_array();
  for (const auto& turn : turns)
    turn.changed ? print_plain(out, turn.role, turn.content) : void(out.raw(turn.json));
  out.end_array();
  return out.take();
}

}  // namespace mlxcel
