// Formats with tags of their own around every argument; the request's schema gives the arguments their types.
#include <algorithm>
#include <array>
#include <functional>

#include "text/reply/call_cursor.h"
#include "text/reply/call_formats.h"

namespace mlxcel {
namespace {

/// The value up to its end tag; a tag that is missing is replaced by the next one that begins a line.
std::string_view value_until(CallCursor& cursor, std::string_view close, std::string_view next,
                             std::string_view end) {
  const size_t at = cursor.find(close);
  size_t other = std::string_view::npos;
  for (const auto& mark : {"\n" + std::string(next), "\n" + std::string(end)}) {
    other = std::min(other, cursor.find(mark));
  }
  if (other < at) return cursor.take(other + 1);
  return cursor.until(close);
}

/// <function=name> <parameter=key> value </parameter> </function>, the opening tag already taken.
ToolCall read_function(CallCursor& cursor) {
  ToolCall call;
  call.name = trimmed(cursor.until(">"));
  if (!is_call_name(call.name)) throw CallCursor::Rejected{};
  const ToolTypes& tools = cursor.context().tools;
  const std::string known = tools.plain_name(call.name);
  if (cursor.peek() == '{') {  // <function=name>{…}</function>, as Llama 3.1's own tools are written
    const LooseValue value = cursor.value(LooseDialect::json, "</function>");
    if (value.kind != LooseValue::Kind::object) throw CallCursor::Rejected{};
    call.arguments = value.json;
    cursor.blanks();
    cursor.expect("</function>");
    return call;
  }
  ArgumentList arguments;
  cursor.show(known, arguments);
  while (cursor.peek(), cursor.eat("<parameter=")) {
    const std::string key(trimmed(cursor.until(">")));
    if (tools.is_text(known, key))
      cursor.show_text(arguments, key, true, {"</parameter>", "\n<parameter=", "\n</function>"});
    const auto value = unframed(value_until(cursor, "</parameter>", "<parameter=", "</function>"));
    if (key.empty() || !arguments.add(key, tools.typed(known, key, value))) throw CallCursor::Rejected{};
    cursor.show(known, arguments);
  }
  cursor.expect("</function>");
  call.arguments = arguments.text();
  return call;
}

/// name <arg_key>k</arg_key> <arg_value>v</arg_value> …, as GLM and LongCat (their own prefix) write it.
ToolCall read_pairs(CallCursor& cursor, const std::string& prefix, std::string_view close) {
  const std::string key_open = "<" + prefix + "arg_key>", key_close = "</" + prefix + "arg_key>";
  const std::string value_open = "<" + prefix + "arg_value>", value_close = "</" + prefix + "arg_value>";
  size_t end = std::min(cursor.find(key_open), cursor.find(close));
  end = std::min({end, cursor.find("\n"), cursor.find("{")});
  if (end == std::string_view::npos) {
    if (!cursor.context().last) throw CallCursor::NeedMore{};
    end = cursor.at() + cursor.rest().size();
  }
  ToolCall call;
  call.name = trimmed(cursor.take(end));
  if (!is_call_name(call.name)) throw CallCursor::Rejected{};
  const std::string known = cursor.context().tools.plain_name(call.name);
  const char next = cursor.peek();
  if (next == '{' || next == '`') {  // name and JSON
    if (cursor.eat("```")) cursor.eat("json");
    const LooseValue value = cursor.value(LooseDialect::json, close);
    if (value.kind != LooseValue::Kind::object) throw CallCursor::Rejected{};
    call.arguments = value.json;
    cursor.blanks();
    cursor.eat("```");
    return call;
  }
  const ToolTypes& tools = cursor.context().tools;
  ArgumentList arguments;
  cursor.show(known, arguments);
  while (cursor.peek() == '<' && cursor.eat(key_open)) {
    const std::string key(trimmed(cursor.until(key_close)));
    cursor.blanks();
    cursor.expect(value_open);
    if (tools.is_text(known, key)) cursor.show_text(arguments, key, true, {value_close});
    const auto value = unframed(cursor.until(value_close));
    if (key.empty() || !arguments.add(key, tools.typed(known, key, value))) throw CallCursor::Rejected{};
    cursor.show(known, arguments);
  }
  // A bare word in the tags is a call only where there is such a tool.
  if (arguments.text() == "{}" && !cursor.context().tools.knows(known)) throw CallCursor::Rejected{};
  call.arguments = arguments.text();
  return call;
}

/// key="value" in a tag's head.
std::string attribute(std::string_view head, std::string_view name) {
  const std::string mark = std::string(name) + "=";
  size_t at = head.find(mark);
  if (at == std::string_view::npos) return "";
  at += mark.size();
  if (at < head.size() && (head[at] == '"' || head[at] == '\'')) {
    const size_t end = head.find(head[at], at + 1);
    return end == std::string_view::npos ? "" : std::string(head.substr(at + 1, end - at - 1));
  }
  return std::string(trimmed(head.substr(at)));
}

/// Whether a value may turn out to be CDATA, whose frame is not part of it.
bool may_be_cdata(std::string_view value) {
  const auto inner = value.substr(skip_blanks(value, 0));
  constexpr std::string_view kOpen = "<![CDATA[";
  return kOpen.starts_with(inner.substr(0, kOpen.size()));
}

std::string_view without_cdata(std::string_view value) {
  const auto inner = trimmed(value);
  if (inner.starts_with("<![CDATA[") && inner.ends_with("]]>") && inner.size() >= 12)
    return inner.substr(9, inner.size() - 12);
  return value;
}

}  // namespace

CallScan scan_tagged(std::string_view text, const CallFrame& frame, const CallContext& context) {
  return run_scan(text, context, [&](CallCursor& cursor) {
    const bool bare = frame.open == "<function=";  // Qwen3-Coder sometimes leaves the wrapper out
    if (bare) {
      cursor.expect(frame.open);
      return cursor.add(read_function(cursor));
    }
    cursor.expect(frame.open);
    const char first = cursor.peek();
    if (first == '{' || first == '[') {
      do {
        const LooseValue value = cursor.value(LooseDialect::json, frame.close);
        cursor.blanks();
        cursor.add_objects(value);
      } while (!cursor.at_end() && cursor.rest().front() == '{');
    } else if (first == '<' && cursor.eat("<function=")) {
      do {
        cursor.add(read_function(cursor));
      } while (cursor.peek() == '<' && cursor.eat("<function="));
    } else {
      ToolCall call = read_pairs(cursor, frame.inner, frame.close);
      cursor.blanks();
      cursor.add(std::move(call));
    }
    cursor.blanks();
    if (cursor.rest().starts_with(frame.open)) return;  // the next call begins without an end of this one
    cursor.close(frame.close);
  });
}

/// A call behind the beginning of its tag: the name, then what `members` reads into its arguments, tag and
/// all.
template <class Members>
void read_call(CallCursor& cursor, const CallContext& context, const Members& members) {
  ToolCall call;
  call.name = attribute(cursor.until(">"), "name");
  if (!is_call_name(call.name)) throw CallCursor::Rejected{};
  const std::string known = context.tools.plain_name(call.name);
  ArgumentList arguments;
  cursor.show(known, arguments);
  members(known, arguments);
  call.arguments = arguments.text();
  cursor.add(std::move(call));
}

CallScan scan_invoke(std::string_view text, const CallFrame& frame, const CallContext& context) {
  const std::string open = "<" + frame.inner + " ", close = "</" + frame.inner + ">";
  const std::string parameter_open = "<" + frame.inner2 + " ", parameter_close = "</" + frame.inner2 + ">";
  return run_scan(text, context, [&](CallCursor& cursor) {
    if (!frame.close.empty()) cursor.expect(frame.open);
    bool any = false;
    if (!frame.close.empty() && cursor.peek() == '{') {  // JSON in the wrapper, as a forced call is written
      cursor.add_objects(cursor.value(LooseDialect::json, frame.close));
      return cursor.close(frame.close);
    }
    while (cursor.peek() == '<' && cursor.eat(open)) {
      read_call(cursor, context, [&](const std::string& known, ArgumentList& arguments) {
        while (cursor.peek() == '<' && cursor.eat(parameter_open)) {
          const auto head = cursor.until(">");
          const std::string key = attribute(head, "name");
          const std::string as_text = attribute(head, "string");
          if (as_text == "true" || context.tools.is_text(known, key)) {
            if (may_be_cdata(cursor.rest()))
              cursor.wait();
            else
              cursor.show_text(arguments, key, true, {parameter_close, "\n" + parameter_open, "\n" + close});
          }
          const auto value =
              without_cdata(unframed(value_until(cursor, parameter_close, parameter_open, close)));
          const std::string json =
              as_text == "true" ? json_quoted(value) : context.tools.typed(known, key, value);
          if (key.empty() || !arguments.add(key, json)) throw CallCursor::Rejected{};
          cursor.show(known, arguments);
        }
        cursor.expect(close);
      });
      any = true;
      if (frame.close.empty()) return;
      if (context.last && skip_blanks(cursor.rest(), 0) == cursor.rest().size()) return;
    }
    if (!any) throw CallCursor::Rejected{};
    cursor.close(frame.close);
  });
}

namespace {

constexpr int kDeepest = 32;  // tags inside one another

using ReadText = std::function<std::string(std::string_view)>;

/// What stands between the tag `key`, already taken, and its end: text, read by `typed`, or tags of its own,
/// which are an array's where all are called item. `sign` comes before every tag.
std::string read_element(CallCursor& cursor, const std::string& sign, const std::string& key, int depth,
                         const ReadText& typed) {
  const std::string end = sign + "</" + key + ">";
  if (depth > kDeepest) throw CallCursor::Rejected{};
  if (cursor.eat(end)) return typed("");
  if (!cursor.eat(sign + "<")) return typed(cursor.until(end));
  std::string items;
  ArgumentList members;
  bool list = true, twice = false;
  do {
    const std::string inner(cursor.until(">"));
    if (inner.empty() || inner.front() == '/') throw CallCursor::Rejected{};
    const ReadText value = [&](std::string_view text) {
      return cursor.context().tools.typed("", inner, text);
    };
    const std::string json = read_element(cursor, sign, inner, depth + 1, value);
    items += (items.empty() ? "" : ",") + json;
    list = list && inner == "item";
    twice = !members.add(inner, json) || twice;
    cursor.blanks();
    if (!cursor.eat(end)) continue;
    if (list) return "[" + items + "]";
    if (twice) throw CallCursor::Rejected{};
    return members.text();
  } while (cursor.eat(sign + "<"));
  cursor.stop();
}

}  // namespace

CallScan scan_nested(std::string_view text, const CallFrame& frame, const CallContext& context) {
  const std::string& sign = frame.inner;
  return run_scan(text, context, [&](CallCursor& cursor) {
    cursor.expect(frame.open);
    if (cursor.peek() == '{') {  // as a forced call is written
      cursor.add_objects(cursor.value(LooseDialect::json, frame.close));
      cursor.blanks();
      return cursor.expect(frame.close);
    }
    bool any = false;
    while (cursor.peek(), cursor.eat(sign + "<invoke ")) {
      read_call(cursor, context, [&](const std::string& known, ArgumentList& arguments) {
        while (cursor.peek(), !cursor.eat(sign + "</invoke>")) {
          cursor.expect(sign + "<");
          const std::string key(cursor.until(">"));
          if (context.tools.is_text(known, key))
            cursor.show_text(arguments, key, false, {sign + "</" + key + ">"});
          const ReadText typed = [&](std::string_view value) {
            return context.tools.typed(known, key, value);
          };
          if (key.empty() || !arguments.add(key, read_element(cursor, sign, key, 1, typed)))
            throw CallCursor::Rejected{};
          cursor.show(known, arguments);
        }
      });
      any = true;
      if (context.last && skip_blanks(cursor.rest(), 0) == cursor.rest().size()) return;
    }
    if (!any) throw CallCursor::Rejected{};
    cursor.expect(frame.close);  // close() would take its first bracket for one too many
  });
}

CallScan scan_xtml(std::string_view text, const CallFrame& frame, const CallContext& context) {
  static constexpr std::string_view kSeparator = "<|sep|>";
  return run_scan(text, context, [&](CallCursor& cursor) {
    cursor.expect(frame.open);
    bool any = false;
    if (cursor.peek() == '{') {
      cursor.add_objects(cursor.value(LooseDialect::json, frame.close));
      return cursor.close(frame.close);
    }
    while (cursor.peek() == '<' && cursor.eat("<|open|>call")) {
      ToolCall call;
      call.name = attribute(cursor.until(kSeparator), "tool");
      if (!is_call_name(call.name)) throw CallCursor::Rejected{};
      const std::string known = context.tools.plain_name(call.name);
      ArgumentList arguments;
      std::string whole;
      cursor.show(known, arguments);
      while (cursor.peek() == '<' && cursor.eat("<|open|>")) {
        const auto head = cursor.until(kSeparator);
        if (head.starts_with("argument")) {
          const std::string key = attribute(head, "key");
          const bool plain = attribute(head, "type") == "string" || attribute(head, "type").empty();
          if (plain) cursor.show_text(arguments, key, false, {"<|close|>argument<|sep|>"});
          const auto value = cursor.until("<|close|>argument<|sep|>");
          const std::string json = plain ? json_quoted(value) : context.tools.typed("", key, value);
          if (key.empty() || !arguments.add(key, json)) throw CallCursor::Rejected{};
          cursor.show(known, arguments);
        } else if (head.starts_with("json")) {
          const auto value = cursor.until("<|close|>json<|sep|>");
          const auto read = read_loose(value, LooseDialect::json, true, true);
          if (read.status != LooseRead::Status::done || read.value.kind != LooseValue::Kind::object)
            throw CallCursor::Rejected{};
          whole = read.value.json;
        } else {
          throw CallCursor::Rejected{};
        }
      }
      cursor.expect("<|close|>call<|sep|>");
      call.arguments = whole.empty() ? arguments.text() : whole;
      cursor.add(std::move(call));
      any = true;
    }
    if (!any) throw CallCursor::Rejected{};
    cursor.close(frame.close);
  });
}

}  // namespace mlxcel
