// Prints JSON text, one call a token; commas come by themselves. Strings that are not UTF-8 have each bad
// byte replaced by U+FFFD; numbers are the shortest text that reads back; NaN and infinities become null.
// Owner: value. Thread: one.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace mlxcel {

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(float number);
  JsonWriter& value(double number);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::same_as<T, bool>) {
      return raw(number ? "true" : "false");
    } else {
      return raw(std::to_string(number));
    }
  }
  JsonWriter& null() { return raw("null"); }
  /// JSON text that is already printed.
  JsonWriter& raw(std::string_view json);

  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  const std::string& text() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void separate();
  void quoted(std::string_view text);
  std::string out_;
};

}  // namespace mlxcel
