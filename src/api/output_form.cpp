#include "api/output_form.h"

#include "api/error.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxSchema = 64 * 1024;
constexpr size_t kMaxGrammar = 256 * 1024;

std::string bounded(std::string text, size_t most, const std::string& path) {
  if (text.size() > most) fail_param(path, "{}: {} bytes, at most {}", path, text.size(), most);
  return text;
}

}  // namespace

std::string schema_text(const JsonNode& schema) {
  if (schema.kind() != JsonKind::object && schema.kind() != JsonKind::boolean)
    schema.wrong("a JSON schema (an object)");
  return bounded(schema.dump(), kMaxSchema, schema.path());
}

OutputForm parse_format_object(const JsonNode& node) {
  OutputForm out;
  out.param = node.path();
  if (node.kind() != JsonKind::object) node.wrong("an object with a type");
  const auto type = node.string("type");
  if (!type) fail_param(node.path() + ".type", "{}.type: expected a string", node.path());
  if (*type == "text") return out;
  if (*type == "json_object") {
    out.kind = OutputForm::Kind::json_object;
    if (const auto schema = node.find("schema")) {
      out.kind = OutputForm::Kind::json_schema;
      out.source = schema_text(*schema);
      out.param = schema->path();
    }
    return out;
  }
  if (*type == "json_schema") {
    const auto wrapper = node.find("json_schema");
    if (wrapper && wrapper->kind() != JsonKind::object) wrapper->wrong("an object with a schema");
    const JsonNode& holder = wrapper ? *wrapper : node;
    holder.string("name");
    holder.string("description");
    const auto schema = holder.find("schema");
    if (!schema) fail_param(holder.path() + ".schema", "{}.schema: expected a JSON schema", holder.path());
    out.kind = OutputForm::Kind::json_schema;
    out.strict = holder.boolean("strict").value_or(false);
    out.source = schema_text(*schema);
    out.param = schema->path();
    return out;
  }
  if (*type == "regex" || *type == "grammar") {
    const char* key = *type == "regex" ? "pattern" : "grammar";
    const auto text = node.string(key);
    if (!text) fail_param(node.path() + "." + key, "{}.{}: expected a string", node.path(), key);
    out.kind = OutputForm::Kind::regex;
    if (*type == "grammar") {
      const auto syntax = node.string("syntax").value_or("gbnf");
      if (syntax != "gbnf" && syntax != "lark") {
        fail_param(node.path() + ".syntax", "{}.syntax: expected gbnf or lark, found \"{}\"", node.path(),
                   syntax.substr(0, 64));
      }
      out.kind = syntax == "lark" ? OutputForm::Kind::lark : OutputForm::Kind::gbnf;
    }
    out.param = node.path() + "." + key;
    out.source = bounded(*text, kMaxGrammar, out.param);
    return out;
  }
  fail_param(node.path() + ".type",
             "{}.type: expected text, json_object, json_schema, regex or grammar, found \"{}\"", node.path(),
             type->substr(0, 64));
}

OutputForm parse_output_form(const JsonNode& body) {
  OutputForm out;
  int given = 0;
  if (const auto format = body.find("response_format")) {
    out = parse_format_object(*format);
    out.param = out.param.empty() ? "response_format" : out.param;
    given += out.kind != OutputForm::Kind::free;
  }
  if (const auto grammar = body.string("grammar"); grammar && !grammar->empty()) {
    out = {OutputForm::Kind::gbnf, bounded(*grammar, kMaxGrammar, "grammar"), "grammar", false};
    ++given;
  }
  if (const auto schema = body.find("json_schema")) {
    out = {OutputForm::Kind::json_schema, schema_text(*schema), "json_schema", false};
    ++given;
  }
  if (given > 1) fail_param(out.param, "response_format, grammar and json_schema: give one of them");
  return out;
}

std::string parse_reasoning_format(const JsonNode& body) {
  const auto format = body.string("reasoning_format");
  if (!format) return "";
  if (*format != "none" && *format != "deepseek" && *format != "deepseek-legacy" && *format != "auto") {
    fail_param("reasoning_format",
               "reasoning_format: expected none, deepseek, deepseek-legacy or auto, found \"{}\"",
               format->substr(0, 64));
  }
  return *format;
}

std::optional<int> parse_thought_budget(const JsonNode& body) {
  for (const char* key : {"thinking_token_budget", "thinking_budget_tokens"}) {
    if (const auto budget = body.integer(key, -1, INT32_MAX); budget && *budget >= 0)
      return static_cast<int>(*budget);
  }
  if (const auto thinking = body.find("thinking"); thinking && thinking->kind() == JsonKind::object) {
    if (const auto budget = thinking->integer("budget_tokens", 0, INT32_MAX))
      return static_cast<int>(*budget);
  }
  return std::nullopt;
}

}  // namespace mlxcel
