#include "text/reply/call_cursor.h"

#include <algorithm>
#include <cctype>

namespace mlxcel {

size_t held_suffix(std::string_view text, std::string_view mark) {
  size_t count = std::min(text.size(), mark.size() - 1);
  for (; count > 0; --count) {
    if (mark.starts_with(text.substr(text.size() - count))) return count;
  }
  return 0;
}

bool is_call_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == ':';
  });
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(skip_blanks(text, 0));
  while (!text.empty() && skip_blanks(text, text.size() - 1) == text.size()) text.remove_suffix(1);
  return text;
}

std::string_view unframed(std::string_view text) {
  if (text.starts_with("\r\n"))
    text.remove_prefix(2);
  else if (text.starts_with('\n'))
    text.remove_prefix(1);
  if (text.ends_with("\r\n"))
    text.remove_suffix(2);
  else if (text.ends_with('\n'))
    text.remove_suffix(1);
  return text;
}

size_t told_of(std::string_view value, const std::vector<std::string>& ends) {
  size_t held = 0;
  for (const auto& end : ends) {
    if (value.find(end) != std::string_view::npos) return 0;
    held = std::max(held, held_suffix(value, end));
  }
  size_t told = value.size() - held;
  if (told > 0 && value[told - 1] == '\n') --told;
  if (told > 0 && value[told - 1] == '\r') --told;
  size_t lead = told;  // of the last character
  while (lead > 0 && told - lead < 4 && (static_cast<unsigned char>(value[lead - 1]) & 0xC0) == 0x80) --lead;
  if (lead == 0) return told;
  const auto first = static_cast<unsigned char>(value[lead - 1]);
  const size_t bytes = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return told - lead + 1 < bytes ? lead - 1 : told;
}

void CallCursor::show(std::string_view tool, const ArgumentList& arguments) {
  hide();
  scan_.open.name = tool;
  scan_.open.arguments = arguments.begun();
}

void CallCursor::show_text(const ArgumentList& arguments, std::string_view key, bool framed,
                           std::vector<std::string> ends) {
  if (key.empty() || arguments.has(key)) return;
  auto value = rest();
  size_t from = 0;
  if (framed) from = value.starts_with("\r\n") ? 2 : value.starts_with('\n') ? 1 : 0;
  scan_.waits = value.empty() || (framed && value == "\r");
  value.remove_prefix(from);
  const bool ended = std::any_of(ends.begin(), ends.end(), [&](const std::string& end) {
    return rest().find(end) != std::string_view::npos;
  });
  if (ended) return;  // the value is told when it is read
  const size_t told = told_of(value, ends);
  std::string& text = scan_.open.arguments;
  text += (text.size() > 1 ? "," : "") + json_quoted(key) + ":";
  const std::string quoted = json_quoted(value.substr(0, told));
  text += std::string_view(quoted).substr(0, quoted.size() - 1);
  if (!scan_.waits) scan_.growing = at_ + from + told;
  scan_.ends = std::move(ends);
}

bool ArgumentList::has(std::string_view key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

bool ArgumentList::add(std::string_view key, const std::string& json) {
  if (has(key)) return false;
  keys_.emplace_back(key);
  if (!body_.empty()) body_ += ',';
  body_ += json_quoted(key) + ":" + json;
  return true;
}

LooseValue CallCursor::value(LooseDialect dialect, std::string_view close) {
  auto read = read_loose(rest(), dialect, context_.last, context_.whole);
  if (read.status == LooseRead::Status::need_more) throw NeedMore{};
  if (read.status == LooseRead::Status::broken) {
    const size_t end = close.empty() ? std::string_view::npos : find(close);
    if (end == std::string_view::npos) stop();
    read = read_loose(text_.substr(at_, end - at_), dialect, true, true);
    if (read.status != LooseRead::Status::done) throw Rejected{};
  }
  scan_.repaired = scan_.repaired || read.repaired;
  at_ += read.used;
  return std::move(read.value);
}

void CallCursor::close(std::string_view mark) {
  blanks();
  size_t extra = at_;
  while (extra < text_.size() &&
         (text_[extra] == '}' || text_[extra] == ']' || skip_blanks(text_, extra) > extra))
    ++extra;
  const auto after = text_.substr(extra);
  if (after.starts_with(mark)) {
    scan_.repaired = scan_.repaired || extra != at_;
    at_ = extra + mark.size();
    return;
  }
  if (!context_.last && mark.starts_with(after)) throw NeedMore{};
  if (context_.last && after.empty()) {
    at_ = extra;
    return;
  }
  throw Rejected{};
}

void CallCursor::add_object(const LooseValue& object) {
  if (object.kind != LooseValue::Kind::object) throw Rejected{};
  const LooseValue* source = &object;
  if (const auto* inner = object.find("function"); inner && inner->kind == LooseValue::Kind::object)
    source = inner;
  ToolCall call;
  for (const char* key : {"name", "tool_name", "function", "tool"}) {
    const auto* name = source->find(key);
    if (name && name->kind == LooseValue::Kind::string) {
      call.name = name->text;
      break;
    }
  }
  const LooseValue* arguments = nullptr;
  for (const char* key : {"arguments", "parameters", "args", "input"}) {
    if (!arguments) arguments = source->find(key);
  }
  if (call.name.empty() && object.members.size() == 1 && context_.tools.knows(object.members[0].first)) {
    call.name = object.members[0].first;  // {"get_weather": {…}}
    arguments = &object.members[0].second;
  }
  if (!is_call_name(call.name)) throw Rejected{};
  if (arguments && arguments->kind == LooseValue::Kind::string) {
    // The arguments as JSON text inside a string.
    const auto inner = read_loose(arguments->text, LooseDialect::json, true, true);
    const bool fine = inner.status == LooseRead::Status::done &&
                      inner.value.kind == LooseValue::Kind::object &&
                      skip_blanks(arguments->text, inner.used) == arguments->text.size();
    if (!fine) throw Rejected{};
    call.arguments = inner.value.json;
  } else if (arguments && arguments->kind == LooseValue::Kind::object) {
    call.arguments = arguments->json;
  } else if (arguments && arguments->kind != LooseValue::Kind::null) {
    throw Rejected{};
  }
  for (const char* key : {"id", "tool_call_id"}) {
    const auto* id = object.find(key);
    if (id && id->kind == LooseValue::Kind::string) call.id = id->text;
  }
  add(std::move(call));
}

void CallCursor::add_objects(const LooseValue& list) {
  if (list.kind == LooseValue::Kind::object) return add_object(list);
  if (list.kind != LooseValue::Kind::array || list.items.empty()) throw Rejected{};
  // All or none: a list of which one item is no call is no list of calls.
  const size_t before = scan_.calls.size();
  const size_t resume = scan_.resume;
  try {
    for (const auto& item : list.items) add_object(item);
  } catch (const Rejected&) {
    scan_.calls.resize(before);
    scan_.resume = resume;
    throw;
  }
}

CallScan run_scan(std::string_view text, const CallContext& context,
                  const std::function<void(CallCursor&)>& read) {
  CallScan scan;
  CallCursor cursor(text, context, scan);
  try {
    read(cursor);
    scan.status = CallScan::Status::done;
    scan.used = cursor.at();
  } catch (const CallCursor::NeedMore&) {
    scan.status = CallScan::Status::need_more;
  } catch (const CallCursor::Rejected&) {
    scan.status = CallScan::Status::rejected;
    scan.used = cursor.at();
  }
  return scan;
}

}  // namespace mlxcel
