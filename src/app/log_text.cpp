#include "app/log_text.h"

#include <algorithm>

namespace mlxcel::app {
namespace {

const char* color_of(log::Level level) {
  switch (level) {
    case log::Level::error:
      return "\033[31m";
    case log::Level::warn:
      return "\033[33m";
    case log::Level::info:
      return "\033[32m";
    default:
      return "\033[2m";
  }
}

/// The front of `rest` up to `mark`, which goes with it; empty where there is none.
std::string_view take(std::string_view& rest, std::string_view mark) {
  const size_t end = rest.find(mark);
  if (end == std::string_view::npos) return {};
  const auto out = rest.substr(0, end + mark.size());
  rest.remove_prefix(end + mark.size());
  return out;
}

}  // namespace

std::string text_log_line(log::Level level, std::string_view line, const LogStyle& style) {
  std::string_view rest = line;
  const auto time = take(rest, " ");
  const auto word = rest.substr(0, std::min<size_t>(rest.size(), 6));  // five letters and a blank
  rest.remove_prefix(word.size());
  const auto target = take(rest, ": ");
  std::string out;
  if (style.timestamps) out += time;
  if (style.prefix) {
    if (style.colors) out += color_of(level);
    out += word;
    if (style.colors) out += "\033[0m";
    out += target;
  }
  return out + std::string(rest);
}

}  // namespace mlxcel::app
