#include "app/log_json.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "api/json_writer.h"

namespace mlxcel::app {
namespace {

std::string_view take_word(std::string_view& rest) {
  const size_t end = std::min(rest.find(' '), rest.size());
  const auto word = rest.substr(0, end);
  rest.remove_prefix(end);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return word;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
}

/// A request's line: id, method or nothing, route, then name=value. The last value may hold blanks.
bool read_request(std::string_view text, std::vector<std::pair<std::string, std::string>>& fields) {
  fields.emplace_back("request_id", take_word(text));
  auto word = take_word(text);
  if (!word.starts_with('/') && !word.empty()) {
    if (word.find('=') != std::string_view::npos) return false;
    fields.emplace_back("method", word);
    word = take_word(text);
  }
  fields.emplace_back("route", word);
  bool status = false;
  while (!text.empty()) {
    const auto whole = text;
    word = take_word(text);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || !is_name(word.substr(0, equals))) {
      if (fields.size() < 4) return false;
      fields.back().second += " ";
      fields.back().second += whole;
      break;
    }
    const auto name = word.substr(0, equals);
    status = status || name == "status";
    fields.emplace_back(name, word.substr(equals + 1));
  }
  return status;
}

}  // namespace

std::string json_log_line(std::string_view level, std::string_view line) {
  std::string_view rest = line;
  const auto time = take_word(rest);
  take_word(rest);  // the level, cut to five letters
  std::string_view target;
  if (const size_t colon = rest.find(": "); colon != std::string_view::npos) {
    target = rest.substr(0, colon);
    rest.remove_prefix(colon + 2);
  }
  JsonWriter out;
  out.begin_object().field("time", time).field("level", level);
  out.field("target", target).field("message", rest);
  std::vector<std::pair<std::string, std::string>> fields;
  if (target == "server" && read_request(rest, fields)) {
    for (const auto& [name, value] : fields) {
      const bool number =
          !value.empty() && value.size() < 16 &&
          std::all_of(
              value.begin(), value.end(), [](unsigned char c) { return std::isdigit(c) != 0; }) &&
          (value.size() == 1 || value[0] != '0');
      if (number && name != "key" && name != "request_id")
        out.key(name).raw(value);
      else
        out.field(name, value);
    }
  }
  out.end_object();
  return out.take();
}

}  // namespace mlxcel::app
