// Reads a call's text from left to right; for the .cpp files of this folder. What is missing is either waited
// for or ends the attempt: both leave by exception, to be caught by run_scan.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/reply/call_formats.h"
#include "text/reply/loose_value.h"

namespace mlxcel {

/// {"key": json, …} built member by member.
class ArgumentList {
 public:
  bool add(std::string_view key, const std::string& json);
  bool has(std::string_view key) const;
  std::string begun() const { return "{" + body_; }
  std::string text() const { return begun() + "}"; }

 private:
  std::string body_;
  std::vector<std::string> keys_;
};

class CallCursor {
 public:
  struct NeedMore {};
  struct Rejected {};

  CallCursor(std::string_view text, const CallContext& context, CallScan& scan)
      : text_(text), context_(context), scan_(scan) {}

  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  bool at_end() const { return at_ >= text_.size(); }
  void blanks() { at_ = skip_blanks(text_, at_); }
  void skip(size_t count) { at_ += count; }
  const CallContext& context() const { return context_; }

  /// The next character after blanks; 0 at the very end.
  char peek() {
    blanks();
    if (!at_end()) return text_[at_];
    if (!context_.last) throw NeedMore{};
    return 0;
  }
  /// Takes `mark` if it is next; waits where the text ends inside it.
  bool eat(std::string_view mark) {
    if (rest().starts_with(mark)) {
      at_ += mark.size();
      return true;
    }
    if (!context_.last && mark.starts_with(rest())) throw NeedMore{};
    return false;
  }
  void expect(std::string_view mark) {
    if (!eat(mark)) throw Rejected{};
  }
  /// The text before `mark`, which is taken too.
  std::string_view until(std::string_view mark) {
    const size_t end = text_.find(mark, at_);
    if (end == std::string_view::npos) stop();
    const auto out = text_.substr(at_, end - at_);
    at_ = end + mark.size();
    return out;
  }
  std::string_view take(size_t end) {
    const auto out = text_.substr(at_, end - at_);
    at_ = end;
    return out;
  }
  size_t find(std::string_view mark) const { return text_.find(mark, at_); }
  [[noreturn]] void stop() const {
    if (!context_.last) throw NeedMore{};
    throw Rejected{};
  }
  /// A value; where it is broken and `close` is in sight, what stands before that may be mended.
  LooseValue value(LooseDialect dialect, std::string_view close = {});
  /// The end of a frame: brackets too many are mended, the mark itself may be missing at the end of the
  /// answer.
  void close(std::string_view mark);

  /// The call that is being read, for those who cannot wait for its end.
  void show(std::string_view tool, const ArgumentList& arguments);
  /// The same, where a text value of `key` begins at the cursor and one of `ends` will end it. `framed`: a
  /// line break at either end is not part of it.
  void show_text(const ArgumentList& arguments, std::string_view key, bool framed,
                 std::vector<std::string> ends);

  /// Whether there is such a text is not known before the next bytes.
  void wait() { scan_.waits = true; }

  void add(ToolCall call) {
    if (call.arguments.empty()) call.arguments = "{}";
    call.name = context_.tools.plain_name(call.name);
    scan_.calls.push_back(std::move(call));
    scan_.resume = at_;
    hide();
  }
  /// {"name", "arguments"} in its many spellings.
  void add_object(const LooseValue& object);
  void add_objects(const LooseValue& list);

 private:
  void hide() {
    scan_.open = {};
    scan_.growing = std::string::npos;
    scan_.waits = false;
  }

  std::string_view text_;
  const CallContext& context_;
  CallScan& scan_;
  size_t at_ = 0;
};

CallScan run_scan(std::string_view text, const CallContext& context,
                  const std::function<void(CallCursor&)>& read);

bool is_call_name(std::string_view text);
std::string_view trimmed(std::string_view text);
/// Without one line break at either end, as XML formats put around their values.
std::string_view unframed(std::string_view text);
}  // namespace mlxcel
