// JSON from outside, read with suspicion: bounded in depth, in values and in bytes, duplicate keys refused,
// typed reads that name the field at fault, and a record of the root's names that nobody asked for. Owner: a
// node shares its document. Thread: one at a time. Failure: invalid_request with `param` the node's path,
// such as messages[2].content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel {

struct JsonLimits {
  int depth = 128;
  size_t values = size_t{1} << 21;
};

enum class JsonKind { null, boolean, number, string, array, object };
const char* to_string(JsonKind kind);

class JsonNode {
 public:
  /// Any JSON text; nothing may follow it.
  static JsonNode parse(std::string_view text, const JsonLimits& limits = {});
  /// A request body: an object; the fields of `extra_body` count as if at the root, where the root wins.
  static JsonNode parse_request(std::string_view body, const JsonLimits& limits = {});

  JsonKind kind() const;
  const std::string& path() const { return path_; }

  bool boolean() const;
  double number(double low, double high) const;
  /// Integral floats count as integers.
  int64_t integer(int64_t low, int64_t high) const;
  std::string string() const;
  size_t size() const;                  // of an array or object
  JsonKind first_kind() const;          // of an array that is not empty
  std::vector<JsonNode> items() const;  // of an array
  std::vector<std::pair<std::string, JsonNode>> members() const;
  std::vector<int32_t> integers(int32_t low, int32_t high) const;  // of an array of nothing else
  std::string dump() const;                                        // JSON text

  /// A member; absent and null are nothing. At the root it marks the name as known.
  std::optional<JsonNode> find(std::string_view key) const;
  bool contains(std::string_view key) const;  // also when null
  bool has(std::string_view key) const { return find(key).has_value(); }
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<double> number(std::string_view key, double low, double high) const;
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<std::string> string(std::string_view key) const;
  /// The root's names that no find() asked for.
  std::vector<std::string> unknown() const;

  /// "expected a string, found a number" at this node.
  [[noreturn]] void wrong(std::string_view expected) const;

 private:
  struct Document;
  JsonNode(std::shared_ptr<Document> document, const void* value, std::string path)
      : document_(std::move(document)), value_(value), path_(std::move(path)) {}

  std::shared_ptr<Document> document_;
  const void* value_;
  std::string path_;
};

}  // namespace mlxcel
