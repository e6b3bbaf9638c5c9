// Formats whose arguments are JSON, or a list in somebody else's syntax. The XML ones are in
// call_formats_xml.cpp.
#include "text/reply/call_formats.h"

#include <algorithm>
#include <cctype>

#include "text/reply/call_cursor.h"

namespace mlxcel {
namespace {

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

/// The name at the cursor; waits where it may go on.
std::string_view read_name(CallCursor& cursor) {
  const auto rest = cursor.rest();
  size_t end = 0;
  while (end < rest.size() && is_name_char(rest[end])) ++end;
  if (end == rest.size() && !cursor.context().last) throw CallCursor::NeedMore{};
  if (end == 0) throw CallCursor::Rejected{};
  return cursor.take(cursor.at() + end);
}

void eat_fence(CallCursor& cursor) {
  cursor.blanks();
  if (cursor.eat("```")) cursor.eat("json");
  cursor.blanks();
}

/// The arguments as they come after a header: an object.
std::string read_arguments(CallCursor& cursor, std::string_view close) {
  if (cursor.peek() != '{') throw CallCursor::Rejected{};
  const LooseValue value = cursor.value(LooseDialect::json, close);
  return value.json;
}

/// f(x=1, y="z") at the cursor.
ToolCall read_python_call(CallCursor& cursor) {
  ToolCall call;
  call.name = read_name(cursor);
  cursor.expect("(");
  const std::string known = cursor.context().tools.plain_name(call.name);
  ArgumentList arguments;
  cursor.show(known, arguments);
  while (cursor.peek() != ')') {
    const auto key = read_name(cursor);
    cursor.blanks();
    cursor.expect("=");
    if (!arguments.add(key, cursor.value(LooseDialect::python).json)) throw CallCursor::Rejected{};
    cursor.show(known, arguments);
    if (cursor.peek() != ',') break;
    cursor.skip(1);
  }
  cursor.blanks();
  cursor.expect(")");
  call.arguments = arguments.text();
  return call;
}

/// {key:value,… at the cursor, as far as its members are whole.
void show_members(CallCursor& cursor, const std::string& tool) {
  const auto text = cursor.rest();
  ArgumentList arguments;
  for (size_t at = 1; at < text.size(); ++at) {
    at = skip_blanks(text, at);
    const size_t from = at;
    while (at < text.size() && is_name_char(text[at])) ++at;
    if (at == from || at == text.size() || text[at] != ':') break;
    const auto key = text.substr(from, at - from);
    const auto value = read_loose(text.substr(++at), LooseDialect::gemma, /*last=*/false, /*mend=*/false);
    if (value.status != LooseRead::Status::done || !arguments.add(key, value.value.json)) break;
    at = skip_blanks(text, at + value.used);
    if (at >= text.size() || text[at] != ',') break;
  }
  cursor.show(tool, arguments);
}

}  // namespace

CallScan scan_json(std::string_view text, const CallFrame& frame, const CallContext& context) {
  return run_scan(text, context, [&](CallCursor& cursor) {
    cursor.expect(frame.open);
    cursor.blanks();
    if (cursor.rest().starts_with('`')) eat_fence(cursor);
    const char first = cursor.peek();
    if (first != '[' && first != '{') throw CallCursor::Rejected{};
    do {
      const LooseValue value = cursor.value(LooseDialect::json, frame.close);
      // The call counts from here on; a mark that ends the frame is taken with it where there is one.
      cursor.add_objects(value);
      cursor.blanks();
      if (!cursor.at_end() && (cursor.rest().front() == ';' || cursor.rest().front() == ',')) {
        cursor.skip(1);
        cursor.blanks();
      }
    } while (!cursor.at_end() && cursor.rest().front() == '{');
    if (!frame.close.empty()) cursor.close(frame.close);
  });
}

CallScan scan_mistral(std::string_view text, const CallFrame& frame, const CallContext& context) {
  return run_scan(text, context, [&](CallCursor& cursor) {
    cursor.expect(frame.open);
    const char first = cursor.peek();
    if (first == '[' || first == '{') return cursor.add_objects(cursor.value(LooseDialect::json));
    ToolCall call;
    call.name = read_name(cursor);
    cursor.blanks();
    if (cursor.eat("[CALL_ID]")) {
      call.id = read_name(cursor);
      cursor.blanks();
    }
    cursor.eat("[ARGS]");
    call.arguments = read_arguments(cursor, {});
    cursor.add(std::move(call));
  });
}

CallScan scan_llama(std::string_view text, const CallFrame& frame, const CallContext& context) {
  return run_scan(text, context, [&](CallCursor& cursor) {
    const bool bare = frame.open == "{";
    if (!bare) cursor.expect(frame.open);
    if (cursor.peek() != '{') {
      if (bare) throw CallCursor::Rejected{};
      ToolCall call = read_python_call(cursor);  // brave_search.call(query="…")
      if (call.name.ends_with(".call")) call.name.resize(call.name.size() - 5);
      return cursor.add(std::move(call));
    }
    if (bare) {
      // An answer that is some other JSON object must not wait for its end.
      const auto inside = cursor.rest().substr(1);
      const size_t quote = skip_blanks(inside, 0);
      if (quote < inside.size() && inside[quote] != '"') throw CallCursor::Rejected{};
      const size_t end = quote < inside.size() ? inside.find('"', quote + 1) : std::string_view::npos;
      if (end == std::string_view::npos) {
        if (inside.size() > 64) throw CallCursor::Rejected{};
        cursor.stop();
      }
      const auto key = inside.substr(quote + 1, end - quote - 1);
      if (key != "name" && key != "type" && key != "function" && key != "parameters")
        throw CallCursor::Rejected{};
    }
    const LooseValue value = cursor.value(LooseDialect::json);
    if (!value.find("parameters") && !value.find("arguments") && !value.find("function"))
      throw CallCursor::Rejected{};
    if (bare) {
      const auto* name = value.find("name");
      const bool named = name && name->kind == LooseValue::Kind::string;
      if (!value.find("function") && !(named && context.tools.knows(context.tools.plain_name(name->text)))) {
        throw CallCursor::Rejected{};
      }
    }
    cursor.add_object(value);
  });
}

CallScan scan_section(std::string_view text, const CallFrame& frame, const CallContext& context) {
  const std::string& begin = frame.inner;
  const std::string& separator = frame.inner2;
  std::string end = begin;
  if (const auto at = end.find("begin"); at != std::string::npos) end.replace(at, 5, "end");
  return run_scan(text, context, [&](CallCursor& cursor) {
    cursor.expect(frame.open);
    bool any = false;
    while (cursor.peek(), cursor.eat(begin)) {
      ToolCall call;
      const std::string header(trimmed(cursor.until(separator)));
      if (header == "function") {
        call.name = trimmed(cursor.until("\n"));  // DeepSeek V3: the name is in a line of its own
      } else if (const auto colon = header.rfind(':');
                 colon != std::string::npos && header.starts_with("functions.")) {
        call.id = header;
        call.name = header.substr(10, colon - 10);
      } else {
        call.name = header;
      }
      if (!is_call_name(call.name)) throw CallCursor::Rejected{};
      eat_fence(cursor);
      call.arguments = read_arguments(cursor, end);
      cursor.blanks();
      cursor.eat("```");
      cursor.close(end);
      cursor.add(std::move(call));
      any = true;
      if (cursor.context().last && skip_blanks(cursor.rest(), 0) == cursor.rest().size()) return;
    }
    if (!any) throw CallCursor::Rejected{};
    cursor.close(frame.close);
  });
}

CallScan scan_gemma(std::string_view text, const CallFrame& frame, const CallContext& context) {
  return run_scan(text, context, [&](CallCursor& cursor) {
    cursor.expect(frame.open);
    cursor.peek();
    do {
      cursor.expect("call:");
      ToolCall call;
      call.name = read_name(cursor);
      if (cursor.peek() != '{') throw CallCursor::Rejected{};
      show_members(cursor, context.tools.plain_name(call.name));
      const LooseValue value = cursor.value(LooseDialect::gemma, frame.close);
      call.arguments = value.json;
      cursor.add(std::move(call));
      if (cursor.peek() == ',') cursor.skip(1);
      cursor.blanks();
    } while (cursor.rest().starts_with('c'));
    cursor.close(frame.close);
  });
}

CallScan scan_python(std::string_view text, const CallFrame& frame, const CallContext& context) {
  return run_scan(text, context, [&](CallCursor& cursor) {
    const bool bare = frame.open == "[";
    if (!bare) cursor.expect(frame.open);
    bool bracket = false;
    if (cursor.peek() == '[') {
      bracket = true;
      cursor.skip(1);
    }
    if (bracket && !cursor.at_end() && cursor.peek() == '{') {  // a list of objects instead of calls
      do {
        cursor.add_objects(cursor.value(LooseDialect::json, frame.close));
        if (cursor.peek() == ',') cursor.skip(1);
      } while (cursor.peek() == '{');
      cursor.expect("]");
      if (!frame.close.empty()) cursor.close(frame.close);
      return;
    }
    if (bare) {
      // Any other list must not wait for its end.
      cursor.blanks();
      const auto rest = cursor.rest();
      size_t end = 0;
      while (end < rest.size() && is_name_char(rest[end])) ++end;
      const auto names = context.tools.names();
      const bool may = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return end == rest.size() ? std::string_view(name).starts_with(rest) : rest.substr(0, end) == name;
      });
      if (!may) throw CallCursor::Rejected{};
    }
    for (;;) {
      cursor.peek();
      ToolCall call = read_python_call(cursor);
      cursor.add(std::move(call));
      if (!bracket && cursor.context().last && skip_blanks(cursor.rest(), 0) == cursor.rest().size()) return;
      const char next = cursor.peek();
      if (next == ',') {
        cursor.skip(1);
        continue;
      }
      if (bracket || !is_name_char(next)) break;
    }
    if (bracket) {
      cursor.blanks();
      cursor.expect("]");
    }
    if (!frame.close.empty()) cursor.close(frame.close);
  });
}

}  // namespace mlxcel
