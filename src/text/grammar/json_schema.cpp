// What may stand in a schema, checked before the compiler sees it, so that errors can say where.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/grammar/grammar.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSchema = size_t{64} << 10;
constexpr int kMaxDepth = 32;
constexpr int kMaxRefs = 64;
constexpr int kMaxTries = 256;  // parts that failing_place() compiles

enum class Holds { annotation, value, schema, schema_or_bool, schemas, map, names, other };
struct Keyword {
  std::string_view name;
  Holds holds;
};
constexpr auto kKeywords = std::to_array<Keyword>({
    {"type", Holds::other},
    {"enum", Holds::value},
    {"const", Holds::value},
    {"properties", Holds::map},
    {"patternProperties", Holds::map},
    {"required", Holds::names},
    {"additionalProperties", Holds::schema_or_bool},
    {"propertyNames", Holds::schema},
    {"minProperties", Holds::other},
    {"maxProperties", Holds::other},
    {"items", Holds::schema_or_bool},
    {"prefixItems", Holds::schemas},
    {"additionalItems", Holds::schema_or_bool},
    {"minItems", Holds::other},
    {"maxItems", Holds::other},
    {"minLength", Holds::other},
    {"maxLength", Holds::other},
    {"pattern", Holds::other},
    {"format", Holds::other},
    {"minimum", Holds::other},
    {"maximum", Holds::other},
    {"exclusiveMinimum", Holds::other},
    {"exclusiveMaximum", Holds::other},
    {"multipleOf", Holds::other},
    {"anyOf", Holds::schemas},
    {"oneOf", Holds::schemas},
    {"allOf", Holds::schemas},
    {"$ref", Holds::other},
    {"$defs", Holds::map},
    {"definitions", Holds::map},
    {"title", Holds::annotation},
    {"description", Holds::annotation},
    {"default", Holds::annotation},
    {"examples", Holds::annotation},
    {"example", Holds::annotation},
    {"deprecated", Holds::annotation},
    {"readOnly", Holds::annotation},
    {"writeOnly", Holds::annotation},
    {"$comment", Holds::annotation},
    {"$schema", Holds::annotation},
    {"$id", Holds::annotation},
    {"discriminator", Holds::annotation},
    {"contentMediaType", Holds::annotation},
    {"contentEncoding", Holds::annotation},
});
constexpr auto kFormats = std::to_array<std::string_view>(
    {"date", "time", "date-time", "email", "uri", "uuid", "ipv4", "ipv6", "hostname", "duration"});

std::string escaped(std::string_view key) {
  std::string out;
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

/// A member, or null.
const Json& member(const Json& node, const char* key) {
  static const Json nothing;
  const auto found = node.find(key);
  return found == node.end() ? nothing : *found;
}

class Checker {
 public:
  Checker(const Json& root, bool strict, const std::string& param)
      : root_(root), strict_(strict), param_(param) {}

  Json schema(const Json& node, const std::string& at, int depth) {
    if (depth > kMaxDepth) wrong(at, "is nested deeper than {} levels", kMaxDepth);
    if (node.is_boolean()) return node;
    if (!node.is_object()) wrong(at, "is {}, expected a schema: an object or a boolean", node.type_name());
    Json out = Json::object();
    for (const auto& [key, value] : node.items()) {
      const std::string place = at + "/" + escaped(key);
      const auto known =
          std::find_if(kKeywords.begin(), kKeywords.end(),
                       [&, k = std::string_view(key)](const Keyword& w) { return w.name == k; });
      if (known == kKeywords.end()) {
        if (key.starts_with("x-")) continue;  // somebody's extension: an annotation
        wrong(place, "is no keyword that can be enforced");
      }
      if (known->holds != Holds::annotation) out[key] = keyword(*known, node, value, place, depth);
    }
    if (strict_) check_strict(node, at);
    if (node.contains("oneOf")) check_one_of(node["oneOf"], at + "/oneOf");
    return out;
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(const std::string& at, fmt::format_string<Args...> form, Args&&... args) const {
    fail_param(param_, "{}: \"{}\" {}", param_, at.empty() ? "/" : at,
               fmt::format(form, std::forward<Args>(args)...));
  }

  Json keyword(const Keyword& word, const Json& node, const Json& value, const std::string& at, int depth) {
    switch (word.holds) {
      case Holds::schema:
      case Holds::schema_or_bool:
        if (value.is_array()) wrong(at, "is a list; `prefixItems` is how tuples are spelled now");
        return schema(value, at, depth + 1);
      case Holds::schemas: {
        if (!value.is_array() || value.empty())
          wrong(at, "is {}, expected a list of schemas", value.type_name());
        Json out = Json::array();
        for (size_t i = 0; i < value.size(); ++i)
          out.push_back(schema(value[i], fmt::format("{}/{}", at, i), depth + 1));
        return out;
      }
      case Holds::map: {
        if (!value.is_object()) wrong(at, "is {}, expected an object of schemas", value.type_name());
        Json out = Json::object();
        for (const auto& [name, part] : value.items())
          out[name] = schema(part, at + "/" + escaped(name), depth + 1);
        return out;
      }
      case Holds::names:
        if (!value.is_array() ||
            !std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); }))
          wrong(at, "is {}, expected a list of names", value.type_name());
        return value;
      case Holds::value:
        if (word.name == "enum" && (!value.is_array() || value.empty()))
          wrong(at, "is {}, expected a list of values", value.type_name());
        return value;
      default:
        check_plain(word.name, node, value, at);
        return value;
    }
  }

  void check_plain(std::string_view name, const Json& node, const Json& value, const std::string& at) {
    if (name == "type") {
      const auto type = [&](const Json& t) {
        static constexpr auto kTypes = std::to_array<std::string_view>(
            {"null", "boolean", "number", "integer", "string", "array", "object"});
        if (!t.is_string() || std::find(kTypes.begin(), kTypes.end(), t.get<std::string>()) == kTypes.end())
          wrong(at, "has {}, expected null, boolean, number, integer, string, array or object", t.dump());
      };
      if (value.is_array())
        for (const Json& t : value) type(t);
      else
        type(value);
    } else if (name == "$ref") {
      if (!value.is_string()) wrong(at, "is {}, expected text", value.type_name());
      if (++refs_ > kMaxRefs) wrong(at, "is one $ref more than the {} that are taken", kMaxRefs);
      const auto target = value.get<std::string>();
      if (target.empty() || target[0] != '#')
        wrong(at, "points to {}: only places in this schema (#/...) can be followed", target);
      try {
        if (!root_.contains(nlohmann::ordered_json::json_pointer(target.substr(1))))
          wrong(at, "points to {}, which is not there", target);
      } catch (const Json::exception&) {
        wrong(at, "points to {}, which is no place in this schema", target);
      }
    } else if (name == "format") {
      if (!value.is_string() ||
          std::find(kFormats.begin(), kFormats.end(), value.get<std::string>()) == kFormats.end())
        wrong(at,
              "is {}, which cannot be enforced; known are date, time, date-time, email, uri, uuid, ipv4, "
              "ipv6, hostname, duration",
              value.dump());
    } else if (name == "pattern") {
      if (!value.is_string()) wrong(at, "is {}, expected text", value.type_name());
    } else if (name == "multipleOf") {
      if (!value.is_number() || !(value.get<double>() > 0))
        wrong(at, "is {}, expected a number above 0", value.dump());
      if (member(node, "type") != "integer" || !value.is_number_integer())
        wrong(at, "can be enforced for integers with a whole step only");
    } else if (name == "minimum" || name == "maximum" || name.starts_with("exclusive")) {
      if (!value.is_number()) wrong(at, "is {}, expected a number", value.type_name());
    } else if (!value.is_number_unsigned()) {
      wrong(at, "is {}, expected a whole number from 0", value.dump());
    }
  }

  void check_strict(const Json& node, const std::string& place) const {
    if (!node.contains("properties") && member(node, "type") != "object") return;
    if (member(node, "additionalProperties") != false)
      wrong(place, "needs \"additionalProperties\": false, since strict is set");
    const Json& required = member(node, "required");
    const Json& properties = member(node, "properties");
    for (auto at = properties.begin(); at != properties.end(); ++at) {
      const std::string& name = at.key();
      if (std::find(required.begin(), required.end(), name) == required.end())
        wrong(place + "/properties/" + escaped(name), "must be in \"required\", since strict is set");
    }
  }

  // One of them must hold and no other: sure where types, or a constant every branch has, set them apart.
  void check_one_of(const Json& branches, const std::string& at) const {
    for (size_t i = 0; i < branches.size(); ++i)
      for (size_t j = i + 1; j < branches.size(); ++j)
        if (!apart(resolved(branches[i]), resolved(branches[j])))
          wrong(fmt::format("{}/{}", at, j),
                "may hold together with branch {}: use anyOf, or a constant that sets them apart", i);
  }

  const Json& resolved(const Json& node) const {
    const Json* at = &node;
    for (int i = 0; i < kMaxDepth && at->is_object() && at->contains("$ref") && (*at)["$ref"].is_string();
         ++i) {
      const auto target = (*at)["$ref"].get<std::string>();
      if (target.empty() || target[0] != '#') break;
      const Json::json_pointer pointer(target.substr(1));
      if (!root_.contains(pointer)) break;
      at = &root_[pointer];
    }
    return *at;
  }

  static std::vector<Json> constants(const Json& node) {
    if (!node.is_object()) return {};
    if (node.contains("const")) return {node["const"]};
    if (node.contains("enum") && node["enum"].is_array()) return {node["enum"].begin(), node["enum"].end()};
    return {};
  }

  bool apart(const Json& a, const Json& b) const {
    if (!a.is_object() || !b.is_object()) return a == false || b == false;
    const auto left = constants(a), right = constants(b);
    if (!left.empty() && !right.empty())
      return std::none_of(left.begin(), left.end(), [&](const Json& x) {
        return std::find(right.begin(), right.end(), x) != right.end();
      });
    const Json &ta = member(a, "type"), &tb = member(b, "type");
    const auto number = [](const Json& t) { return t == "number" || t == "integer"; };
    if (ta.is_string() && tb.is_string() && ta != tb && !(number(ta) && number(tb))) return true;
    if (ta != "object" || tb != "object") return false;
    const Json &ra = member(a, "required"), &rb = member(b, "required");
    for (const Json& name : ra) {
      if (!name.is_string() || std::find(rb.begin(), rb.end(), name) == rb.end()) continue;
      const Json &pa = member(a, "properties"), &pb = member(b, "properties");
      const auto key = name.get<std::string>();
      if (pa.contains(key) && pb.contains(key) && apart(resolved(pa[key]), resolved(pb[key]))) return true;
    }
    return false;
  }

  const Json& root_;
  const bool strict_;
  const std::string& param_;
  int refs_ = 0;
};

struct Search {
  const Json& root;
  const std::function<bool(const std::string&)>& compiles;
  int tries = 0;

  bool fails(Json part) {
    if (++tries > kMaxTries) return false;
    if (part.is_object())
      for (const char* defs : {"$defs", "definitions"})
        if (root.contains(defs) && !part.contains(defs)) part[defs] = root[defs];
    return !compiles(part.dump());
  }

  // The first part below `node` that fails by itself, else `node`.
  std::string deepest(const Json& node, const std::string& at) {
    const auto below = [&](const Json& part, const std::string& place) -> std::string {
      return part.is_object() && fails(part) ? deepest(part, place) : std::string();
    };
    if (node.is_object())
      for (const auto& [key, value] : node.items()) {
        const auto word =
            std::find_if(kKeywords.begin(), kKeywords.end(),
                         [&, k = std::string_view(key)](const Keyword& w) { return w.name == k; });
        if (word == kKeywords.end()) continue;
        const std::string place = at + "/" + escaped(key);
        std::string found;
        if (word->holds == Holds::schema || word->holds == Holds::schema_or_bool) found = below(value, place);
        if (word->holds == Holds::schemas)
          for (size_t i = 0; i < value.size() && found.empty(); ++i)
            found = below(value[i], fmt::format("{}/{}", place, i));
        if (word->holds == Holds::map)
          for (const auto& [name, part] : value.items())
            if (found.empty()) found = below(part, place + "/" + escaped(name));
        if (!found.empty()) return found;
      }
    if (node.is_object() && node.contains("pattern") &&
        fails(Json{{"type", "string"}, {"pattern", node["pattern"]}}))
      return at + "/pattern";
    return at.empty() ? "/" : at;
  }
};

}  // namespace

std::string checked_schema(const std::string& text, bool strict, const std::string& param) {
  if (text.size() > kMaxSchema)
    fail_param(param, "{}: a schema of {} bytes, at most {} are taken", param, text.size(), kMaxSchema);
  int depth = 0;
  bool deep = false;
  // Values as deep as schemas: the reader itself stops at a bound.
  const Json root = Json::parse(
      text,
      [&](int level, Json::parse_event_t, Json&) {
        depth = std::max(depth, level);
        deep |= level > 4 * kMaxDepth;
        return !deep;
      },
      false);
  if (deep) fail_param(param, "{}: the schema is nested deeper than {} levels", param, kMaxDepth);
  if (root.is_discarded()) fail_param(param, "{}: the schema is not JSON", param);
  if (!root.is_object())
    fail_param(param, "{}: \"/\" is {}, expected a schema: an object", param, root.type_name());
  return Checker(root, strict, param).schema(root, "", 1).dump();
}

std::string failing_place(const std::string& schema,
                          const std::function<bool(const std::string&)>& compiles) {
  const Json root = Json::parse(schema, nullptr, false);
  Search search{root, compiles};
  return "\"" + search.deepest(root, "") + "\"";
}

}  // namespace mlxcel
