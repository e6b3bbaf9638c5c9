// Values as models write them: JSON with the faults that can be mended (escapes, missing brackets, line
// breaks inside strings), Python literals, and Gemma's call syntax with bare keys. The result is strict JSON
// text. Owner: values. Thread: any. Failure: a status, never an exception. Nesting is bounded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel {

struct LooseValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  std::string json;  // strict, compact; numbers as they were written
  std::string text;  // a string's own bytes
  std::vector<std::pair<std::string, LooseValue>> members;
  std::vector<LooseValue> items;

  const LooseValue* find(std::string_view key) const;
};

enum class LooseDialect { json, python, gemma };

struct LooseRead {
  enum class Status { done, need_more, broken };
  Status status = Status::broken;
  size_t used = 0;        // bytes read, leading blanks included
  bool repaired = false;  // something was mended
  LooseValue value;
};

/// The value at the front of `text`. `last`: nothing will follow; `mend`: then brackets that are missing are
/// added.
LooseRead read_loose(std::string_view text, LooseDialect dialect, bool last, bool mend);

/// A JSON string literal of these bytes.
std::string json_quoted(std::string_view text);
size_t skip_blanks(std::string_view text, size_t at);

}  // namespace mlxcel
