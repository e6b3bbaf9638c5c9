#include "text/reply/tool_types.h"

#include <nlohmann/json.hpp>

#include "text/reply/loose_value.h"

namespace mlxcel {

using nlohmann::json;

class TypeReader {
 public:
  static ToolTypes::Types read(const json& schema, int depth = 0) {
    ToolTypes::Types out;
    if (!schema.is_object() || depth > 8) return out;
    if (const auto type = schema.find("type"); type != schema.end()) {
      if (type->is_string()) note(out, type->get<std::string>());
      if (type->is_array()) {
        for (const auto& each : *type) {
          if (each.is_string()) note(out, each.get<std::string>());
        }
      }
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const auto list = schema.find(key);
      if (list == schema.end() || !list->is_array()) continue;
      for (const auto& each : *list) merge(out, read(each, depth + 1));
    }
    if (const auto list = schema.find("enum"); list != schema.end() && list->is_array() && !out.known()) {
      for (const auto& each : *list) value_type(out, each);
    }
    if (const auto value = schema.find("const"); value != schema.end() && !out.known())
      value_type(out, *value);
    return out;
  }

 private:
  static void note(ToolTypes::Types& out, const std::string& name) {
    if (name == "string") out.text = true;
    if (name == "number") out.number = true;
    if (name == "integer") out.integer = true;
    if (name == "boolean") out.boolean = true;
    if (name == "null") out.null = true;
    if (name == "object" || name == "array") out.container = true;
  }
  static void value_type(ToolTypes::Types& out, const json& value) {
    if (value.is_string()) out.text = true;
    if (value.is_number()) out.number = true;
    if (value.is_boolean()) out.boolean = true;
    if (value.is_null()) out.null = true;
    if (value.is_structured()) out.container = true;
  }
  static void merge(ToolTypes::Types& out, const ToolTypes::Types& more) {
    out.text |= more.text;
    out.number |= more.number;
    out.integer |= more.integer;
    out.boolean |= more.boolean;
    out.null |= more.null;
    out.container |= more.container;
  }
};

ToolTypes::ToolTypes(std::string_view tools_json) {
  if (tools_json.empty()) return;
  const json tools = json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) return;
  for (const auto& tool : tools) {
    const json* function = &tool;
    if (tool.is_object() && tool.contains("function")) function = &tool["function"];
    if (!function->is_object() || !function->contains("name") || !(*function)["name"].is_string()) continue;
    auto& types = tools_[(*function)["name"].get<std::string>()];
    const auto parameters = function->find("parameters");
    if (parameters == function->end() || !parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    for (const auto& [name, schema] : properties->items()) types[name] = TypeReader::read(schema);
  }
}

std::vector<std::string> ToolTypes::names() const {
  std::vector<std::string> out;
  for (const auto& [name, types] : tools_) out.push_back(name);
  return out;
}

std::string ToolTypes::plain_name(std::string_view written) const {
  if (knows(written)) return std::string(written);
  for (size_t at = 0; at < written.size(); ++at) {
    if (written[at] != '.' && written[at] != ':') continue;
    if (knows(written.substr(at + 1))) return std::string(written.substr(at + 1));
  }
  if (written.starts_with("functions.")) written.remove_prefix(10);
  return std::string(written);
}

bool ToolTypes::is_text(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return false;
  const auto known = found->second.find(parameter);
  return known != found->second.end() && known->second.text && !known->second.null;
}

std::string ToolTypes::typed(std::string_view tool, std::string_view parameter, std::string_view text) const {
  Types types;
  if (const auto found = tools_.find(tool); found != tools_.end()) {
    if (const auto known = found->second.find(parameter); known != found->second.end()) types = known->second;
  }
  if (types.text) {
    return types.null && (text == "null" || text == "None") ? "null" : json_quoted(text);
  }
  const auto read = read_loose(text, LooseDialect::python, /*last=*/true, /*mend=*/false);
  const bool whole = read.status == LooseRead::Status::done && skip_blanks(text, read.used) == text.size();
  if (!whole) return json_quoted(text);
  // Without a type, only what JSON itself writes differently from a word is taken for more than text.
  return read.value.json;
}

}  // namespace mlxcel
