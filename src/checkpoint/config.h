// A checkpoint's hyper-parameters: typed, bounded reads of config.json or of GGUF metadata spelled the
// same way. Remembers which keys were read, so that unknown ones can be reported.
// Owner: value type over shared JSON. Thread: any, one at a time.
// Failure: bad_checkpoint naming the key, what was expected and what was found.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

class Config {
 public:
  /// Parses JSON text (config.json, a test's .tiny): an object, at most 64 deep and 64 MiB long. `where`
  /// names it in messages. NaN and Infinity are read as Python writes them.
  static Config parse(std::string_view json, std::string where);

  bool has(std::string_view key) const;       // present and not null
  bool is_null(std::string_view key) const;   // present and null, where that is not the default
  bool is_array(std::string_view key) const;  // for keys that come as one value or as a list
  bool is_object(std::string_view key) const;
  bool is_string(std::string_view key) const;
  bool is_bool(std::string_view key) const;

  /// Required reads: absent, null or of another type is an error. Integers are bounded to [0, 2^31);
  /// 4096.0 is an integer, true is not. A float is finite, or infinite where the file says Infinity.
  /// T: int, float, bool, std::string, std::vector<int>, std::vector<float>, std::vector<std::string>.
  template <class T>
  T get(std::string_view key) const;
  /// With a default for absent and null.
  template <class T>
  T get(std::string_view key, T fallback) const;
  std::string get(std::string_view key, const char* fallback) const;
  /// An integer in [low, high].
  int integer(std::string_view key, int low, int high) const;
  int integer(std::string_view key, int low, int high, int fallback) const;

  /// A nested object; an empty Config for absent, null or {}.
  Config child(std::string_view key) const;
  /// The same; keys of `inherited` that it lacks are read from this object.
  Config child(std::string_view key, std::vector<std::string> inherited) const;
  /// A list of objects; empty for absent and null.
  std::vector<Config> children(std::string_view key) const;
  bool empty() const;
  std::vector<std::string> keys() const;
  /// Keys nobody has read so far, dotted for nested objects.
  std::vector<std::string> unread() const;
  std::string dump() const;  // the JSON text, one line
  const std::string& where() const;

 private:
  struct Document;
  struct Node;
  std::shared_ptr<Node> node_;
};

}  // namespace mlxcel
