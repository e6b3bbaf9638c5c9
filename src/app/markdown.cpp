#include "app/markdown.h"

namespace mlxcel::app {
namespace {

constexpr const char* kReset = "\033[0m";
constexpr const char* kBold = "\033[1m";
constexpr const char* kCode = "\033[36m";
constexpr const char* kHeading = "\033[1;34m";

bool is_marker(char c) { return c == '*' || c == '`' || c == '#'; }

}  // namespace

void MarkdownPainter::style(std::string& out) {
  const char* wanted = block_ || fence_line_ || code_ ? kCode : heading_ ? kHeading : bold_ ? kBold : "";
  if (shown_ == wanted) return;
  if (!shown_.empty()) out += kReset;
  out += wanted;
  shown_ = wanted;
}

void MarkdownPainter::end_line(std::string& out) {
  heading_ = bold_ = code_ = fence_line_ = false;
  line_start_ = true;
  style(out);
}

/// The held run is complete: decide what it opens or closes.
void MarkdownPainter::marker(std::string& out) {
  if (held_.empty()) return;
  const char kind = held_[0];
  const size_t count = held_.size();
  const std::string run = std::move(held_);
  held_.clear();
  if (kind == '`' && count >= 3 && line_start_) {
    fence_line_ = true;
    style(out);
    out += run;
    block_ = !block_;
  } else if (block_ || fence_line_) {
    out += run;
  } else if (kind == '`') {
    if (code_ && count == ticks_) {
      out += run;
      code_ = false;
      style(out);
    } else {
      if (!code_) {
        code_ = true;
        ticks_ = count;
      }
      style(out);
      out += run;
    }
  } else if (kind == '#' && line_start_ && count <= 6 && after_marker_ == ' ') {
    heading_ = true;
    style(out);
    out += run;
  } else if (kind == '*' && count == 2 && !code_) {
    const bool opens = !bold_ && after_marker_ != ' ' && after_marker_ != '\n';
    const bool closes = bold_ && before_ != ' ';
    if (opens) {
      bold_ = true;
      style(out);
    }
    out += run;
    if (closes) {
      bold_ = false;
      style(out);
    }
  } else {
    out += run;
  }
  line_start_ = false;
  before_ = kind;
}

void MarkdownPainter::take(char c, std::string& out) {
  if (is_marker(c) && (held_.empty() || held_[0] == c)) {
    held_ += c;
    return;
  }
  after_marker_ = c;
  marker(out);
  if (is_marker(c)) {
    held_ += c;
    return;
  }
  if (c == '\n') {
    const bool styled = !shown_.empty();
    if (styled && !block_) end_line(out);  // the style ends before the line does
    out += c;
    end_line(out);
  } else {
    if (c != ' ' && c != '\t') line_start_ = false;
    style(out);
    out += c;
  }
  before_ = c;
}

std::string MarkdownPainter::push(std::string_view text) {
  std::string out;
  for (const char c : text) take(c, out);
  return out;
}

std::string MarkdownPainter::finish() {
  std::string out;
  after_marker_ = '\n';
  marker(out);
  if (!shown_.empty()) out += kReset;
  shown_.clear();
  return out;
}

}  // namespace mlxcel::app
