#include "text/reply/loose_value.h"

#include <array>
#include <cctype>
#include <cstdint>
#include <optional>

namespace mlxcel {
namespace {

constexpr int kDeepest = 64;

using Kind = LooseValue::Kind;
struct NeedMore {};
struct Broken {};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 63));
    out += static_cast<char>(0x80 | ((c >> 6) & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

/// -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?
bool is_json_number(std::string_view t) {
  size_t i = 0;
  auto digits = [&] {
    const size_t from = i;
    while (i < t.size() && std::isdigit(static_cast<unsigned char>(t[i]))) ++i;
    return i - from;
  };
  if (i < t.size() && t[i] == '-') ++i;
  const size_t first = i;
  const size_t whole = digits();
  if (whole == 0 || (whole > 1 && t[first] == '0')) return false;
  if (i < t.size() && t[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < t.size() && (t[i] == 'e' || t[i] == 'E')) {
    ++i;
    if (i < t.size() && (t[i] == '+' || t[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == t.size();
}

class Reader {
 public:
  Reader(std::string_view text, LooseDialect dialect, bool last, bool mend)
      : text_(text), dialect_(dialect), last_(last), mend_(mend) {}

  LooseValue value(int depth) {
    if (depth > kDeepest) throw Broken{};
    blanks();
    const char c = peek();
    if (c == '{') return object(depth);
    if (c == '[') return array(depth, ']');
    if (c == '(' && dialect_ == LooseDialect::python) return array(depth, ')');
    if (at_string()) return string_value();
    return word();
  }

  size_t used() const { return at_; }
  bool repaired() const { return repaired_; }

 private:
  /// The next character; the end is either the end of the value or a reason to wait.
  char peek() {
    if (at_ < text_.size()) return text_[at_];
    if (!last_) throw NeedMore{};
    throw Broken{};
  }

  void blanks() { at_ = skip_blanks(text_, at_); }

  /// True where the text has come to its end inside a container that may be closed for it.
  bool mended_end() {
    blanks();
    if (at_ < text_.size()) return false;
    if (!last_) throw NeedMore{};
    if (!mend_) throw Broken{};
    repaired_ = true;
    return true;
  }

  std::string_view delimiter() const {
    if (dialect_ != LooseDialect::gemma) return {};
    for (const std::string_view mark : {std::string_view("<|\"|>"), std::string_view("<escape>")}) {
      if (text_.substr(at_).starts_with(mark)) return mark;
    }
    return {};
  }

  bool at_string() {
    const char c = peek();
    if (c == '"' || (c == '\'' && dialect_ == LooseDialect::python)) return true;
    if (dialect_ != LooseDialect::gemma || c != '<') return false;
    if (!delimiter().empty()) return true;
    if (!last_ && text_.size() - at_ < 8) throw NeedMore{};
    return false;
  }

  LooseValue string_value() {
    LooseValue out;
    out.kind = Kind::string;
    out.text = string();
    out.json = json_quoted(out.text);
    return out;
  }

  std::string string() {
    if (const auto mark = delimiter(); !mark.empty()) {
      at_ += mark.size();
      const size_t end = text_.find(mark, at_);
      if (end == std::string_view::npos) {
        if (!last_) throw NeedMore{};
        throw Broken{};
      }
      std::string out(text_.substr(at_, end - at_));
      at_ = end + mark.size();
      return out;
    }
    const char quote = text_[at_++];
    std::string out;
    for (;;) {
      const char c = peek();
      ++at_;
      if (c == quote) return out;
      if (c == '\\') {
        escape(out);
      } else {
        if (static_cast<unsigned char>(c) < 0x20) repaired_ = true;
        out += c;
      }
    }
  }

  void escape(std::string& out) {
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        out += '\n';
        return;
      case 't':
        out += '\t';
        return;
      case 'r':
        out += '\r';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case '"':
      case '\\':
      case '/':
        out += c;
        return;
      case '\'':
        if (dialect_ != LooseDialect::python) break;
        out += c;
        return;
      case 'u': {
        const auto unit = hex4();
        if (!unit) break;
        if (*unit >= 0xD800 && *unit < 0xDC00) {
          if (at_ + 1 >= text_.size() && !last_) throw NeedMore{};
          if (text_.substr(at_).starts_with("\\u")) {
            at_ += 2;
            const auto low = hex4();
            if (low && *low >= 0xDC00 && *low < 0xE000) {
              append_utf8(out, 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00));
              return;
            }
            at_ -= low ? 6 : 2;
          }
          append_utf8(out, 0xFFFD);
        } else {
          append_utf8(out, *unit >= 0xDC00 && *unit < 0xE000 ? 0xFFFD : *unit);
        }
        return;
      }
      default:
        break;
    }
    // Not an escape: the backslash was meant as itself, as in an unescaped \d+.
    repaired_ = true;
    out += '\\';
    out += c;
  }

  std::optional<uint32_t> hex4() {
    if (text_.size() - at_ < 4 && !last_) throw NeedMore{};
    if (text_.size() - at_ < 4) return std::nullopt;
    uint32_t out = 0;
    for (size_t i = 0; i < 4; ++i) {
      const char c = text_[at_ + i];
      if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
      out = out * 16 + static_cast<uint32_t>(
                           std::isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 32) - 'a' + 10);
    }
    at_ += 4;
    return out;
  }

  std::string key() {
    if (at_string()) return string();
    if (dialect_ != LooseDialect::gemma) throw Broken{};
    const size_t from = at_;
    while (peek() != ':') {
      if (at_ - from > 256 || std::string_view("{}[],\n").find(text_[at_]) != std::string_view::npos)
        throw Broken{};
      ++at_;
    }
    std::string out(text_.substr(from, at_ - from));
    while (!out.empty() && is_blank(out.back())) out.pop_back();
    if (out.empty()) throw Broken{};
    return out;
  }

  LooseValue object(int depth) {
    LooseValue out;
    out.kind = Kind::object;
    out.json = "{";
    ++at_;
    for (;;) {
      if (mended_end()) break;
      if (text_[at_] == '}') {
        ++at_;
        break;
      }
      std::string name = key();
      blanks();
      if (peek() != ':') throw Broken{};
      ++at_;
      LooseValue member = value(depth + 1);
      if (!out.find(name)) {
        if (out.json.size() > 1) out.json += ',';
        out.json += json_quoted(name) + ":" + member.json;
        out.members.emplace_back(std::move(name), std::move(member));
      } else {
        throw Broken{};
      }
      if (mended_end()) break;
      separator('}');
    }
    out.json += '}';
    return out;
  }

  LooseValue array(int depth, char close) {
    LooseValue out;
    out.kind = Kind::array;
    out.json = "[";
    ++at_;
    for (;;) {
      if (mended_end()) break;
      if (text_[at_] == close) {
        ++at_;
        break;
      }
      LooseValue item = value(depth + 1);
      if (out.json.size() > 1) out.json += ',';
      out.json += item.json;
      out.items.push_back(std::move(item));
      if (mended_end()) break;
      separator(close);
    }
    out.json += ']';
    return out;
  }

  /// A comma, or the close bracket that the caller will see; a comma before the bracket is mended.
  void separator(char close) {
    if (text_[at_] == close) return;
    if (text_[at_] != ',') throw Broken{};
    ++at_;
    blanks();
    if (at_ < text_.size() && text_[at_] == close) repaired_ = true;
  }

  LooseValue word() {
    const size_t from = at_;
    while (at_ < text_.size() &&
           (is_word(text_[at_]) || text_[at_] == '-' || text_[at_] == '+' || text_[at_] == '.'))
      ++at_;
    if (at_ == text_.size() && !last_) throw NeedMore{};
    LooseValue out;
    out.json = text_.substr(from, at_ - from);
    if (is_json_number(out.json)) {
      out.kind = Kind::number;
      return out;
    }
    if (out.json == "true" || out.json == "True" || out.json == "false" || out.json == "False") {
      out.kind = Kind::boolean;
      out.json = (out.json[0] | 32) == 't' ? "true" : "false";
      return out;
    }
    if (out.json == "null" || out.json == "None") {
      out.json = "null";
      return out;
    }
    if (dialect_ != LooseDialect::gemma) throw Broken{};
    // A bare value runs to the comma or bracket that ends it.
    while (at_ < text_.size() && std::string_view(",}]").find(text_[at_]) == std::string_view::npos) ++at_;
    if (at_ == text_.size() && !last_) throw NeedMore{};
    out.kind = Kind::string;
    out.text = text_.substr(from, at_ - from);
    while (!out.text.empty() && is_blank(out.text.back())) out.text.pop_back();
    if (out.text.empty()) throw Broken{};
    out.json = json_quoted(out.text);
    return out;
  }

  std::string_view text_;
  LooseDialect dialect_;
  bool last_, mend_;
  size_t at_ = 0;
  bool repaired_ = false;
};

}  // namespace

const LooseValue* LooseValue::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

size_t skip_blanks(std::string_view text, size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

std::string json_quoted(std::string_view text) {
  static constexpr std::array<char, 16> kHex = {'0', '1', '2', '3', '4', '5', '6', '7',
                                                '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out += '"';
}

LooseRead read_loose(std::string_view text, LooseDialect dialect, bool last, bool mend) {
  Reader reader(text, dialect, last, mend);
  LooseRead out;
  try {
    out.value = reader.value(0);
    out.status = LooseRead::Status::done;
    out.used = reader.used();
    out.repaired = reader.repaired();
  } catch (const NeedMore&) {
    out.status = LooseRead::Status::need_more;
  } catch (const Broken&) {
    out.status = LooseRead::Status::broken;
  }
  return out;
}

}  // namespace mlxcel
