#include "text/reply/call_probe.h"

#include "text/reply/call_cursor.h"
#include "text/reply/json_prefix.h"

namespace mlxcel {
namespace {

struct NeedMore {};
struct None {};

/// Reads strictly; what is not there yet is waited for, what is different ends the attempt.
class Reader {
 public:
  Reader(std::string_view text, size_t at) : text_(text), at_(at) {}
  size_t at() const { return at_; }
  char peek() {
    at_ = skip_blanks(text_, at_);
    if (at_ >= text_.size()) throw NeedMore{};
    return text_[at_];
  }
  bool eat(std::string_view mark) {
    const auto rest = text_.substr(at_);
    if (rest.starts_with(mark)) {
      at_ += mark.size();
      return true;
    }
    if (mark.starts_with(rest)) throw NeedMore{};
    return false;
  }
  void expect(std::string_view mark) {
    if (!eat(mark)) throw None{};
  }
  std::string_view until(std::string_view mark) {
    const size_t end = text_.find(mark, at_);
    if (end == std::string_view::npos) throw NeedMore{};
    const auto out = text_.substr(at_, end - at_);
    at_ = end + mark.size();
    return out;
  }
  /// A string without escapes.
  std::string_view plain_string() {
    if (peek() != '"') throw None{};
    ++at_;
    const auto out = until("\"");
    if (out.find('\\') != std::string_view::npos || out.size() > 128) throw None{};
    return out;
  }
  std::string_view name() {
    peek();
    const size_t from = at_;
    while (at_ < text_.size() && is_call_name(text_.substr(at_, 1)) && text_[at_] != ':') ++at_;
    if (at_ == text_.size()) throw NeedMore{};
    if (at_ == from) throw None{};
    return text_.substr(from, at_ - from);
  }

 private:
  std::string_view text_;
  size_t at_;
};

/// {"name": …, "arguments": { in either spelling, perhaps inside a list or under "function".
void read_object(Reader& in, CallProbe& out) {
  if (in.peek() == '[') in.expect("[");
  in.peek();
  in.expect("{");
  for (int members = 0; members < 8; ++members) {
    const auto key = in.plain_string();
    in.peek();
    in.expect(":");
    const char next = in.peek();
    if (key == "name" || key == "tool_name" || (key == "function" && next == '"')) {
      out.head.name = in.plain_string();
    } else if (key == "id" || key == "tool_call_id") {
      out.head.id = in.plain_string();
    } else if (key == "type") {
      in.plain_string();
    } else if (key == "function" && next == '{') {
      in.expect("{");
      continue;
    } else if (next == '{' && !out.head.name.empty() &&
               (key == "arguments" || key == "parameters" || key == "args" || key == "input")) {
      return;
    } else {
      throw None{};
    }
    in.peek();
    in.expect(",");
  }
  throw None{};
}

void read_header(Reader& in, const CallFrame& frame, CallProbe& out) {
  in.peek();
  in.expect(frame.inner);
  const std::string header(trimmed(in.until(frame.inner2)));
  const auto colon = header.rfind(':');
  if (header == "function") {
    out.head.name = trimmed(in.until("\n"));
  } else if (colon != std::string::npos && header.starts_with("functions.")) {
    out.head.id = header;
    out.head.name = header.substr(10, colon - 10);
  } else {
    out.head.name = header;
  }
  if (in.peek() == '`') {
    in.expect("```");
    in.eat("json");
  }
}

void read_frame(Reader& in, size_t from, const CallFrame& frame, CallProbe& out) {
  if (from == 0 && frame.open != "{" && frame.open != "[") in.expect(frame.open);
  if (frame.scan == scan_section) return read_header(in, frame, out);
  if (from != 0) throw None{};
  const char first = in.peek();
  if (frame.scan == scan_mistral && first != '[' && first != '{') {
    out.head.name = in.name();
    in.peek();
    if (in.eat("[CALL_ID]")) out.head.id = in.name();
    in.peek();
    in.eat("[ARGS]");
    return;
  }
  if (frame.scan == scan_gemma || frame.scan == scan_python) throw None{};
  read_object(in, out);
}

}  // namespace

CallProbe probe_call(std::string_view text, size_t from, const CallFrame& frame, const ToolTypes& tools) {
  CallProbe out;
  Reader in(text, from);
  try {
    read_frame(in, from, frame, out);
    out.head.name = tools.plain_name(out.head.name);
    if (!tools.knows(out.head.name) || in.peek() != '{') throw None{};
    out.arguments = in.at();
    JsonPrefix json;
    json.feed(text.substr(out.arguments));
    if (json.begun_at() != std::string::npos) {
      out.begun = out.arguments + json.begun_at();
      out.status = CallProbe::Status::found;
    } else if (!json.broken()) {
      out.status = CallProbe::Status::need_more;
    }
  } catch (const NeedMore&) {
    out.status = CallProbe::Status::need_more;
  } catch (const None&) {
    out.status = CallProbe::Status::none;
  }
  return out;
}

}  // namespace mlxcel
