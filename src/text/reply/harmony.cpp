#include "text/reply/harmony.h"

#include <algorithm>
#include <array>

#include "text/reply/call_cursor.h"

namespace mlxcel {
namespace {

constexpr std::array<std::string_view, 7> kEnds = {"<|end|>", "<|call|>",  "<|return|>", "<|eom|>",
                                                   "<|eot|>", "<|start|>", "<|channel|>"};
constexpr size_t kClosing = 5;  // the others begin something
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr size_t kLongestHeader = 512;

std::string word_after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + mark.size());
  return std::string(text.substr(0, text.find_first_of(" \t\r\n<")));
}

}  // namespace

HarmonySplitter::HarmonySplitter(std::string_view prompt_tail, bool with_calls, ThoughtMode mode,
                                 CallSplitter& calls, bool framed)
    : with_calls_(with_calls), framed_(framed), mode_(mode), calls_(calls) {
  const size_t start = prompt_tail.rfind("<|start|>");
  if (start == std::string_view::npos) return;
  const auto open = prompt_tail.substr(start);
  if (const size_t message = open.rfind(kMessage); message != std::string_view::npos) {
    enter(open.substr(0, message));
  } else if (const size_t channel = open.find(kChannel); channel != std::string_view::npos) {
    buffer_ = open.substr(channel);
  }
}

void HarmonySplitter::enter(std::string_view header) {
  channel_ = word_after(header, kChannel);
  recipient_ = word_after(header, "to=");
  if (framed_) {
    channel_ = recipient_ == "self" ? "analysis" : "final";
    recipient_.clear();
  }
  if (channel_.empty()) channel_ = "final";
  arguments_.clear();
  state_ = State::body;
  if (!is_call()) return;
  ToolCall head;
  head.name = call_name();
  if (calls_.knows(head.name)) calls_.begin_call(std::move(head));
}

std::string HarmonySplitter::call_name() const {
  return recipient_.starts_with("functions.") ? recipient_.substr(10) : recipient_;
}

void HarmonySplitter::push(std::string_view text, std::vector<ReplyPiece>& out) {
  buffer_ += text;
  advance(false, false, out);
}

void HarmonySplitter::finish(bool whole, std::vector<ReplyPiece>& out) {
  advance(true, whole, out);
  leave(whole, out);
  if (framed_ && with_calls_) calls_.finish(whole, out);
}

std::string HarmonySplitter::thought_end() const {
  return framed_ ? "<|eom|><|start|>assistant to=user<|message|>"
                 : "<|end|><|start|>assistant<|channel|>final<|message|>";
}

void HarmonySplitter::body(std::string_view text, std::vector<ReplyPiece>& out) {
  if (text.empty()) return;
  if (is_call()) {
    arguments_ += text;
    calls_.feed_call(text, out);
  } else if (channel_ == "analysis" && recipient_.empty() && mode_ != ThoughtMode::keep) {
    append_text(out, ReplyPiece::Kind::thought, text);
    if (mode_ == ThoughtMode::both) append_text(out, ReplyPiece::Kind::content, text);
  } else if (framed_ && with_calls_ && channel_ == "final") {
    calls_.push(text, out);
  } else {
    append_text(out, ReplyPiece::Kind::content, text);
  }
}

void HarmonySplitter::leave(bool complete, std::vector<ReplyPiece>& out) {
  if (state_ == State::body && is_call()) {
    const auto text = trimmed(arguments_);
    const auto read = read_loose(text.empty() ? "{}" : text, LooseDialect::json, true, complete);
    const bool fine = read.status == LooseRead::Status::done && read.value.kind == LooseValue::Kind::object &&
                      (text.empty() || skip_blanks(text, read.used) == text.size());
    const std::string name = call_name();
    if (fine && complete && is_call_name(name)) {
      ToolCall call;
      call.name = name;
      call.arguments = read.value.json;
      calls_.add_call(std::move(call), out);
    } else if (!calls_.abandon_call(!complete, out) || complete) {
      unparsed_ = true;
      append_text(out, ReplyPiece::Kind::content, arguments_);
    }
  }
  arguments_.clear();
  recipient_.clear();
  state_ = State::header;
}

void HarmonySplitter::advance(bool last, bool whole, std::vector<ReplyPiece>& out) {
  for (;;) {
    if (state_ == State::header) {
      // Text without a header is the answer itself; what is what must not depend on how it was cut.
      const size_t blanks = skip_blanks(buffer_, 0);
      const auto text = std::string_view(buffer_).substr(blanks);
      const auto closing = kEnds.begin() + kClosing;
      const auto stray =
          std::find_if(kEnds.begin(), closing, [&](auto end) { return text.starts_with(end); });
      if (stray != closing) {
        buffer_.erase(0, blanks + stray->size());
        continue;
      }
      auto may_begin = [&](std::string_view mark) {
        return text.starts_with(mark) || mark.starts_with(text);
      };
      const bool header = text.empty() || may_begin(kMessage) || may_begin("to=") ||
                          may_begin("<|constrain|>") || may_begin("assistant") ||
                          std::any_of(kEnds.begin(), kEnds.end(), may_begin);
      const size_t message = header ? buffer_.find(kMessage) : std::string::npos;
      if (message != std::string::npos && message + kMessage.size() <= kLongestHeader) {
        enter(std::string_view(buffer_).substr(0, message));
        buffer_.erase(0, message + kMessage.size());
        continue;
      }
      if (header && buffer_.size() < kLongestHeader) {
        if (last) buffer_.clear();
        return;
      }
      enter("");
      continue;
    }
    size_t at = std::string::npos;
    size_t size = 0;
    for (const auto end : kEnds) {
      const size_t found = buffer_.find(end);
      if (found < at) {
        at = found;
        size = end == kChannel || end == "<|start|>" ? 0 : end.size();
      }
    }
    if (at != std::string::npos) {
      body(std::string_view(buffer_).substr(0, at), out);
      buffer_.erase(0, at + size);
      leave(true, out);
      continue;
    }
    size_t held = 0;
    if (!last) {
      for (const auto end : kEnds) held = std::max(held, held_suffix(buffer_, end));
    }
    body(std::string_view(buffer_).substr(0, buffer_.size() - held), out);
    buffer_.erase(0, buffer_.size() - held);
    (void)whole;
    return;
  }
}

}  // namespace mlxcel
