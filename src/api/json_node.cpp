#include "api/json_node.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace mlxcel {

// In the order of the text: a template shows tools and arguments as their author wrote them.
using json = nlohmann::ordered_json;

constexpr size_t kMostMembers = 2048;  // of one object, whose names are looked up one by one

struct JsonNode::Document {
  json root;
  std::set<std::string, std::less<>> known;
};

namespace {

const json& at(const void* value) { return *static_cast<const json*>(value); }

JsonKind kind_of(const json& value) {
  switch (value.type()) {
    case json::value_t::boolean:
      return JsonKind::boolean;
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
    case json::value_t::number_float:
      return JsonKind::number;
    case json::value_t::string:
      return JsonKind::string;
    case json::value_t::array:
      return JsonKind::array;
    case json::value_t::object:
      return JsonKind::object;
    default:
      return JsonKind::null;
  }
}

const char* with_article(JsonKind kind) {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a boolean";
    case JsonKind::number:
      return "a number";
    case JsonKind::string:
      return "a string";
    case JsonKind::array:
      return "an array";
    case JsonKind::object:
      return "an object";
  }
  return "";
}

/// The parser's own words, without its identifiers: "…; last read: '\"\x80'".
std::string parse_complaint(const json::exception& error) {
  std::string text = error.what();
  if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  if (text.size() > 300) text.resize(300);
  return text;
}

json parse_bounded(std::string_view text, const JsonLimits& limits) {
  size_t values = 0;
  std::vector<std::set<std::string, std::less<>>> keys;
  auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= limits.depth)
          fail(ErrorKind::invalid_request, "JSON nested deeper than {} levels", limits.depth);
        [[fallthrough]];
      case json::parse_event_t::value:
        if (++values > limits.values)
          fail(ErrorKind::invalid_request, "JSON with more than {} values", limits.values);
        break;
      case json::parse_event_t::key: {
        const auto& name = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(name).second) {
          fail_param(name.substr(0, 64), "JSON object has the key \"{}\" twice", name.substr(0, 64));
        }
        if (keys.back().size() > kMostMembers) {
          fail(ErrorKind::invalid_request, "JSON object with more than {} members", kMostMembers);
        }
        break;
      }
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case json::parse_event_t::array_end:
        break;
    }
    return true;
  };
  // The parser takes a NUL for the end of the text, and would not see what stands behind it.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail(ErrorKind::invalid_request, "the body is not valid JSON: a NUL byte at position {}", nul);
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    fail(ErrorKind::invalid_request, "the body is not valid JSON: {}", parse_complaint(error));
  }
}

}  // namespace

const char* to_string(JsonKind kind) {
  static constexpr const char* names[] = {"null", "boolean", "number", "string", "array", "object"};
  return names[static_cast<int>(kind)];
}

JsonNode JsonNode::parse(std::string_view text, const JsonLimits& limits) {
  auto document = std::make_shared<Document>();
  document->root = parse_bounded(text, limits);
  const void* root = &document->root;
  return JsonNode(std::move(document), root, "");
}

JsonNode JsonNode::parse_request(std::string_view body, const JsonLimits& limits) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    fail(ErrorKind::invalid_request, "the body is empty; expected a JSON object");
  }
  JsonNode node = parse(body, limits);
  json& root = node.document_->root;
  if (!root.is_object()) {
    fail(ErrorKind::invalid_request, "the body must be a JSON object, found {}", with_article(node.kind()));
  }
  if (const auto extra = root.find("extra_body"); extra != root.end() && !extra->is_null()) {
    if (!extra->is_object())
      fail_param("extra_body", "extra_body: expected an object, found {}", extra->type_name());
    json fields = std::move(*extra);
    root.erase(extra);
    for (auto& [name, value] : fields.items()) {
      if (!root.contains(name)) root[name] = std::move(value);
    }
  }
  return node;
}

JsonKind JsonNode::kind() const { return kind_of(at(value_)); }

JsonKind JsonNode::first_kind() const { return kind_of(at(value_).front()); }

void JsonNode::wrong(std::string_view expected) const {
  fail_param(path_, "{}: expected {}, found {}", path_.empty() ? "body" : path_, expected,
             with_article(kind()));
}

bool JsonNode::boolean() const {
  if (kind() != JsonKind::boolean) wrong("a boolean");
  return at(value_).get<bool>();
}

double JsonNode::number(double low, double high) const {
  if (kind() != JsonKind::number) wrong("a number");
  const double x = at(value_).get<double>();
  if (!(x >= low && x <= high))
    fail_param(path_, "{}: expected a number from {} to {}, found {}", path_, low, high, x);
  return x;
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  const json& value = at(value_);
  if (!value.is_number()) wrong("an integer");
  int64_t x = 0;
  if (value.is_number_unsigned()) {
    const uint64_t u = value.get<uint64_t>();
    if (u > static_cast<uint64_t>(INT64_MAX)) {
      fail_param(path_, "{}: expected an integer from {} to {}, found {}", path_, low, high, u);
    }
    x = static_cast<int64_t>(u);
  } else if (value.is_number_float()) {
    const double d = value.get<double>();
    // Beyond 2^53 a float no longer says which integer it means.
    if (d != std::floor(d) || std::abs(d) > 9007199254740992.0) {
      fail_param(path_, "{}: expected an integer from {} to {}, found {}", path_, low, high, d);
    }
    x = static_cast<int64_t>(d);
  } else {
    x = value.get<int64_t>();
  }
  if (x < low || x > high)
    fail_param(path_, "{}: expected an integer from {} to {}, found {}", path_, low, high, x);
  return x;
}

std::string JsonNode::string() const {
  if (kind() != JsonKind::string) wrong("a string");
  return at(value_).get<std::string>();
}

size_t JsonNode::size() const { return at(value_).size(); }

std::vector<JsonNode> JsonNode::items() const {
  if (kind() != JsonKind::array) wrong("an array");
  std::vector<JsonNode> out;
  out.reserve(size());
  for (const auto& item : at(value_)) {
    out.push_back(JsonNode(document_, &item, fmt::format("{}[{}]", path_, out.size())));
  }
  return out;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  if (kind() != JsonKind::object) wrong("an object");
  std::vector<std::pair<std::string, JsonNode>> out;
  for (const auto& [name, item] : at(value_).items()) {
    out.emplace_back(name, JsonNode(document_, &item, path_.empty() ? name : path_ + "." + name));
  }
  return out;
}

std::vector<int32_t> JsonNode::integers(int32_t low, int32_t high) const {
  if (kind() != JsonKind::array) wrong("an array");
  std::vector<int32_t> out;
  out.reserve(size());
  for (const auto& item : at(value_)) {
    const bool quick = item.is_number_integer() && !item.is_number_float();
    if (quick && item.get<int64_t>() >= low && item.get<int64_t>() <= high) {
      out.push_back(static_cast<int32_t>(item.get<int64_t>()));
      continue;
    }
    const JsonNode node(document_, &item, fmt::format("{}[{}]", path_, out.size()));
    out.push_back(static_cast<int32_t>(node.integer(low, high)));
  }
  return out;
}

std::string JsonNode::dump() const { return at(value_).dump(); }

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (kind() != JsonKind::object) wrong("an object");
  if (path_.empty()) document_->known.emplace(key);
  const auto found = at(value_).find(key);
  if (found == at(value_).end() || found->is_null()) return std::nullopt;
  return JsonNode(document_, &*found, path_.empty() ? std::string(key) : path_ + "." + std::string(key));
}

bool JsonNode::contains(std::string_view key) const { return at(value_).contains(key); }

std::optional<bool> JsonNode::boolean(std::string_view key) const {
  const auto node = find(key);
  if (!node) return std::nullopt;
  return node->boolean();
}

std::optional<double> JsonNode::number(std::string_view key, double low, double high) const {
  const auto node = find(key);
  if (!node) return std::nullopt;
  return node->number(low, high);
}

std::optional<int64_t> JsonNode::integer(std::string_view key, int64_t low, int64_t high) const {
  const auto node = find(key);
  if (!node) return std::nullopt;
  return node->integer(low, high);
}

std::optional<std::string> JsonNode::string(std::string_view key) const {
  const auto node = find(key);
  if (!node) return std::nullopt;
  return node->string();
}

std::vector<std::string> JsonNode::unknown() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : document_->root.items()) {
    if (!document_->known.contains(name)) out.push_back(name);
  }
  return out;
}

}  // namespace mlxcel
