#include "text/reply/json_prefix.h"

#include <algorithm>
#include <cctype>

#include "text/reply/loose_value.h"

namespace mlxcel {
namespace {

constexpr size_t kDeepest = 64;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool is_number(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  auto digits = [&] {
    const size_t from = at;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return at > from;
  };
  if (at < text.size() && text[at] == '0') {
    ++at;
  } else if (!digits()) {
    return false;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

std::string utf8(unsigned code) {
  std::string out;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
  return out;
}

}  // namespace

std::string JsonPrefix::feed(std::string_view text) {
  out_.clear();
  for (const char c : text) {
    if (state_ == State::broken || state_ == State::done) break;
    ++read_;
    step(c);
  }
  return std::move(out_);
}

std::string JsonPrefix::closers() const {
  std::string out;
  if (state_ == State::done) return out;
  if (in_text_) out += '"';
  for (auto bracket = open_.rbegin(); bracket != open_.rend(); ++bracket) out += *bracket == '{' ? '}' : ']';
  return out;
}

void JsonPrefix::give(std::string_view text) {
  if (begun_at_ == std::string::npos) begun_at_ = read_;
  out_ += pending_;
  pending_.clear();
  out_ += text;
}

void JsonPrefix::begin_value(char c) {
  if (c == '"') {
    give("\"");
    state_ = State::text;
    in_text_ = true;
    in_key_ = false;
  } else if (c == '{' || c == '[') {
    if (open_.size() >= kDeepest) {
      state_ = State::broken;
      return;
    }
    give(std::string_view(&c, 1));
    open_.push_back(c);
    state_ = c == '{' ? State::first_key : State::first_value;
  } else if (c == '-' || std::isalnum(static_cast<unsigned char>(c))) {
    word_ = c;
    state_ = State::scalar;
  } else {
    state_ = State::broken;
  }
}

void JsonPrefix::end_container(char c) {
  if (open_.back() != (c == '}' ? '{' : '[')) {
    state_ = State::broken;
    return;
  }
  give(std::string_view(&c, 1));
  open_.pop_back();
  state_ = open_.empty() ? State::done : State::after_value;
}

void JsonPrefix::end_scalar() {
  if (word_ == "true" || word_ == "false" || word_ == "null" || is_number(word_)) {
    give(word_);
    state_ = State::after_value;
  } else {
    state_ = State::broken;
  }
}

void JsonPrefix::decoded(std::string_view bytes) {
  if (high_ != 0) {
    state_ = State::broken;  // half a pair, and no other half
  } else if (in_key_) {
    word_ += bytes;
  } else {
    const std::string quoted = json_quoted(bytes);
    give(std::string_view(quoted).substr(1, quoted.size() - 2));
  }
}

void JsonPrefix::text_char(char c) {
  if (escape_.empty()) {
    if (c == '\\') {
      escape_ = c;
    } else if (c != '"') {
      decoded(std::string_view(&c, 1));
    } else if (high_ != 0) {
      state_ = State::broken;
    } else if (in_key_) {
      pending_ += json_quoted(word_);
      state_ = State::colon;
    } else {
      give("\"");
      in_text_ = false;
      state_ = State::after_value;
    }
    return;
  }
  escape_ += c;
  if (escape_[1] != 'u') {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const size_t which = kNames.find(c);
    escape_.clear();
    if (which == std::string_view::npos)
      state_ = State::broken;
    else
      decoded(kMeant.substr(which, 1));
    return;
  }
  if (escape_.size() > 2 && !std::isxdigit(static_cast<unsigned char>(c))) {
    state_ = State::broken;
    return;
  }
  if (escape_.size() < 6) return;
  const auto code = static_cast<unsigned>(std::stoul(escape_.substr(2), nullptr, 16));
  escape_.clear();
  if (high_ != 0 && code >= 0xDC00 && code < 0xE000) {
    const unsigned whole = 0x10000 + ((high_ - 0xD800) << 10) + (code - 0xDC00);
    high_ = 0;
    decoded(utf8(whole));
  } else if (high_ == 0 && code >= 0xD800 && code < 0xDC00) {
    high_ = code;
  } else if (code >= 0xDC00 && code < 0xE000) {
    state_ = State::broken;
  } else {
    decoded(utf8(code));
  }
}

void JsonPrefix::step(char c) {
  if (state_ == State::text) return text_char(c);
  if (state_ == State::scalar) {
    if (!is_blank(c) && c != ',' && c != '}' && c != ']') {
      word_ += c;
      if (word_.size() > 400) state_ = State::broken;
      return;
    }
    end_scalar();
    if (state_ == State::broken) return;
  }
  if (is_blank(c)) return;
  switch (state_) {
    case State::start:
      if (c != '{') {
        state_ = State::broken;
        return;
      }
      pending_ = "{";
      open_.push_back(c);
      state_ = State::first_key;
      return;
    case State::first_key:
    case State::key:
      if (c == '}' && state_ == State::first_key) return end_container(c);
      word_.clear();
      in_key_ = true;
      state_ = c == '"' ? State::text : State::broken;
      return;
    case State::colon:
      pending_ += ':';
      state_ = c == ':' ? State::value : State::broken;
      return;
    case State::first_value:
      if (c == ']') return end_container(c);
      return begin_value(c);
    case State::value:
      return begin_value(c);
    case State::after_value:
      if (c == '}' || c == ']') return end_container(c);
      pending_ = ",";
      state_ = c != ',' ? State::broken : open_.back() == '{' ? State::key : State::value;
      return;
    default:
      return;
  }
}

}  // namespace mlxcel
