#include "checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"

namespace mlxcel {

namespace {

using json = nlohmann::json;

constexpr size_t kMaxText = size_t{64} << 20;
constexpr int kMaxDepth = 64;
// What stands for Python's NaN, Infinity and -Infinity while nlohmann parses or prints: no real string
// begins with this control character unescaped.
constexpr std::string_view kMark = "\\u0001mlxcel:";
constexpr std::string_view kMarkValue = "\x01mlxcel:";

/// The text with NaN and Infinity made strings; checks the depth before the parser builds anything.
std::string strict_json(std::string_view text, const std::string& where) {
  if (text.size() > kMaxText)
    fail(ErrorKind::bad_checkpoint, "{}: {} bytes of JSON, at most {} are read", where, text.size(),
         kMaxText);
  std::string out;
  out.reserve(text.size());
  int depth = 0;
  bool quoted = false;
  const auto special = [&](size_t at, std::string_view word) { return text.substr(at, word.size()) == word; };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      out.push_back(c);
      if (c == '\\' && i + 1 < text.size()) out.push_back(text[++i]);
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') {
      if (++depth > kMaxDepth)
        fail(ErrorKind::bad_checkpoint, "{}: JSON nested more than {} deep", where, kMaxDepth);
    }
    if (c == '}' || c == ']') --depth;
    std::string_view word;
    if (special(i, "NaN")) word = "NaN";
    if (special(i, "Infinity")) word = "Infinity";
    if (special(i, "-Infinity")) word = "-Infinity";
    if (word.empty()) {
      out.push_back(c);
    } else {
      out.append("\"").append(kMark).append(word).append("\"");
      i += word.size() - 1;
    }
  }
  return out;
}

/// Visits every value; `change` may replace it.
template <class Change>
void walk(json& value, const Change& change) {
  change(value);
  if (value.is_structured())
    for (json& inner : value) walk(inner, change);
}

/// NaN and infinities, as strict_json marks them and as newer transformers write them: {"__float__": "NaN"}.
std::optional<double> special_number(const json& value) {
  std::string_view word;
  if (value.is_string()) {
    word = value.get_ref<const std::string&>();
    if (!word.starts_with(kMarkValue)) return std::nullopt;
    word.remove_prefix(kMarkValue.size());
  } else if (value.is_object() && value.size() == 1 && value.contains("__float__") &&
             value["__float__"].is_string()) {
    word = value["__float__"].get_ref<const std::string&>();
  }
  const double infinity = std::numeric_limits<double>::infinity();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return infinity;
  if (word == "-Infinity") return -infinity;
  return std::nullopt;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    text = std::isnan(value.get<double>()) ? "NaN" : "Infinity";
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace

struct Config::Document {
  json root;
  std::string where;
  std::set<std::string> read, entered;
};

struct Config::Node {
  std::shared_ptr<Document> document;
  const json* value;                       // an object inside document->root
  std::string prefix;                      // "text_config."
  std::shared_ptr<const Node> outer = {};  // where inherited keys come from
  std::vector<std::string> inherited = {};

  std::string path(std::string_view key) const { return prefix + std::string(key); }
  /// The value of a key, or null where absent or null. Notes that it was read.
  const json* look(std::string_view key) const {
    const auto found = value->find(key);
    if (found == value->end() && std::find(inherited.begin(), inherited.end(), key) != inherited.end())
      return outer->look(key);
    if (found == value->end()) return nullptr;
    document->read.insert(path(key));
    return found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void mismatch(std::string_view key, std::string_view expected, const json& found) const {
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {}, found {}", document->where, path(key), expected,
         shown(found));
  }
};

Config Config::parse(std::string_view text, std::string where) {
  auto document = std::make_shared<Document>();
  document->where = std::move(where);
  const std::string strict = strict_json(text, document->where);
  try {
    document->root = json::parse(strict);
  } catch (const json::exception& error) {
    fail(ErrorKind::bad_checkpoint, "{}: not valid JSON: {}", document->where, error.what());
  }
  if (!document->root.is_object())
    fail(ErrorKind::bad_checkpoint, "{}: expected a JSON object, found {}", document->where,
         shown(document->root));
  walk(document->root, [](json& value) {
    if (const auto number = special_number(value)) value = *number;
  });
  Config config;
  config.node_ = std::make_shared<Node>(Node{document, &document->root, ""});
  return config;
}

bool Config::has(std::string_view key) const { return node_ && node_->look(key); }

bool Config::is_null(std::string_view key) const {
  return node_ && node_->value->contains(key) && !node_->look(key);
}

bool Config::is_array(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  return value && value->is_array();
}
bool Config::is_object(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  return value && value->is_object();
}
bool Config::is_string(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  return value && value->is_string();
}
bool Config::is_bool(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  return value && value->is_boolean();
}

namespace {

/// Each returns nothing where the value is of another type or out of bounds.
std::optional<int64_t> whole(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) < 1e15 && number == std::floor(number)) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

template <class T>
struct Reader;

template <>
struct Reader<int> {
  static constexpr const char* expected = "an integer from 0 to 2147483647";
  static std::optional<int> read(const json& value) {
    const auto number = whole(value);
    if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) return std::nullopt;
    return static_cast<int>(*number);
  }
};

template <>
struct Reader<float> {
  static constexpr const char* expected = "a number within the range of float32";
  static std::optional<float> read(const json& value) {
    if (!value.is_number()) return std::nullopt;
    const double number = value.get<double>();
    if (std::isnan(number)) return std::nullopt;
    if (!std::isinf(number) && std::abs(number) > std::numeric_limits<float>::max()) return std::nullopt;
    return static_cast<float>(number);
  }
};

template <>
struct Reader<bool> {
  static constexpr const char* expected = "true or false";
  static std::optional<bool> read(const json& value) {
    if (!value.is_boolean()) return std::nullopt;
    return value.get<bool>();
  }
};

template <>
struct Reader<std::string> {
  static constexpr const char* expected = "a string";
  static std::optional<std::string> read(const json& value) {
    if (!value.is_string()) return std::nullopt;
    return value.get<std::string>();
  }
};

template <class T>
std::optional<std::vector<T>> read_list(const json& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<T> out;
  out.reserve(value.size());
  for (const json& item : value) {
    auto read = Reader<T>::read(item);
    if (!read) return std::nullopt;
    out.push_back(std::move(*read));
  }
  return out;
}

template <>
struct Reader<std::vector<int>> {
  static constexpr const char* expected = "a list of integers from 0 to 2147483647";
  static std::optional<std::vector<int>> read(const json& value) { return read_list<int>(value); }
};
template <>
struct Reader<std::vector<float>> {
  static constexpr const char* expected = "a list of numbers within the range of float32";
  static std::optional<std::vector<float>> read(const json& value) { return read_list<float>(value); }
};
template <>
struct Reader<std::vector<std::string>> {
  static constexpr const char* expected = "a list of strings";
  static std::optional<std::vector<std::string>> read(const json& value) {
    return read_list<std::string>(value);
  }
};

[[noreturn]] void fail_absent(const std::string& where, const std::string& key, std::string_view expected) {
  fail(ErrorKind::bad_checkpoint, "{}: {}: expected {}, found nothing", where, key, expected);
}

}  // namespace

template <class T>
T Config::get(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  if (!value) fail_absent(where(), node_ ? node_->path(key) : std::string(key), Reader<T>::expected);
  auto read = Reader<T>::read(*value);
  if (!read) node_->mismatch(key, Reader<T>::expected, *value);
  return std::move(*read);
}

template <class T>
T Config::get(std::string_view key, T fallback) const {
  return has(key) ? get<T>(key) : fallback;
}

std::string Config::get(std::string_view key, const char* fallback) const {
  return get<std::string>(key, std::string(fallback));
}

template int Config::get<int>(std::string_view) const;
template float Config::get<float>(std::string_view) const;
template bool Config::get<bool>(std::string_view) const;
template std::string Config::get<std::string>(std::string_view) const;
template std::vector<int> Config::get<std::vector<int>>(std::string_view) const;
template std::vector<float> Config::get<std::vector<float>>(std::string_view) const;
template std::vector<std::string> Config::get<std::vector<std::string>>(std::string_view) const;
template int Config::get<int>(std::string_view, int) const;
template float Config::get<float>(std::string_view, float) const;
template bool Config::get<bool>(std::string_view, bool) const;
template std::string Config::get<std::string>(std::string_view, std::string) const;
template std::vector<int> Config::get<std::vector<int>>(std::string_view, std::vector<int>) const;
template std::vector<float> Config::get<std::vector<float>>(std::string_view, std::vector<float>) const;
template std::vector<std::string> Config::get<std::vector<std::string>>(std::string_view,
                                                                        std::vector<std::string>) const;

int Config::integer(std::string_view key, int low, int high) const {
  const std::string expected = fmt::format("an integer from {} to {}", low, high);
  const json* value = node_ ? node_->look(key) : nullptr;
  if (!value) fail_absent(where(), node_ ? node_->path(key) : std::string(key), expected);
  const auto number = whole(*value);
  if (!number || *number < low || *number > high) node_->mismatch(key, expected, *value);
  return static_cast<int>(*number);
}

int Config::integer(std::string_view key, int low, int high, int fallback) const {
  return has(key) ? integer(key, low, high) : fallback;
}

Config Config::child(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  if (!value) return {};
  if (!value->is_object()) node_->mismatch(key, "an object", *value);
  node_->document->entered.insert(node_->path(key));
  Config config;
  config.node_ = std::make_shared<Node>(Node{node_->document, value, node_->path(key) + "."});
  return config;
}

Config Config::child(std::string_view key, std::vector<std::string> inherited) const {
  Config config = child(key);
  if (config.node_) {
    config.node_->outer = node_;
    config.node_->inherited = std::move(inherited);
  }
  return config;
}

std::vector<Config> Config::children(std::string_view key) const {
  const json* value = node_ ? node_->look(key) : nullptr;
  if (!value) return {};
  if (!value->is_array()) node_->mismatch(key, "a list of objects", *value);
  std::vector<Config> list;
  for (size_t i = 0; i < value->size(); ++i) {
    const json& item = (*value)[i];
    if (!item.is_object()) node_->mismatch(key, "a list of objects", *value);
    Config config;
    config.node_ =
        std::make_shared<Node>(Node{node_->document, &item, fmt::format("{}[{}].", node_->path(key), i)});
    list.push_back(std::move(config));
  }
  return list;
}

bool Config::empty() const { return !node_ || node_->value->empty(); }

std::vector<std::string> Config::keys() const {
  std::vector<std::string> out;
  if (node_)
    for (const auto& item : node_->value->items()) out.push_back(item.key());
  return out;
}

std::vector<std::string> Config::unread() const {
  std::vector<std::string> out;
  if (!node_) return out;
  const Document& document = *node_->document;
  const auto visit = [&](const auto& self, const json& object, const std::string& prefix) -> void {
    for (const auto& item : object.items()) {
      const std::string path = prefix + item.key();
      if (!document.read.contains(path))
        out.push_back(path);
      else if (item.value().is_object() && document.entered.contains(path))
        self(self, item.value(), path + ".");
    }
  };
  visit(visit, *node_->value, node_->prefix);
  return out;
}

std::string Config::dump() const {
  if (!node_) return "{}";
  json copy = *node_->value;
  bool special = false;
  walk(copy, [&](json& value) {
    if (!value.is_number_float() || std::isfinite(value.get<double>())) return;
    const double number = value.get<double>();
    const char* word = std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    value = std::string(kMarkValue) + word;
    special = true;
  });
  std::string text = copy.dump();
  if (!special) return text;
  for (const char* word : {"NaN", "Infinity", "-Infinity"}) {
    const std::string quoted = "\"" + std::string(kMark) + word + "\"";
    for (size_t at = text.find(quoted); at != std::string::npos; at = text.find(quoted, at))
      text.replace(at, quoted.size(), word);
  }
  return text;
}

const std::string& Config::where() const {
  static const std::string nothing = "configuration";
  return node_ ? node_->document->where : nothing;
}

}  // namespace mlxcel
