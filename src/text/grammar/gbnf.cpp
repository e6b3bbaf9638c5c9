// GBNF, llama.cpp's notation for grammars, as Lark with the same language. Lexers take the longest match,
// grammars do not: so a grammar without recursion becomes one regular expression, and any other is written
// character by character, where every lexeme is one character long and nothing is left to the lexer.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "text/grammar/grammar.h"

namespace mlxcel {
namespace {

constexpr int kMaxRepeat = 2000;  // of one item, and of repetitions inside repetitions multiplied
constexpr int kMaxDepth = 64;
constexpr size_t kMaxRegex = 200'000;  // characters of the one expression; beyond: character by character

struct Node {
  enum class Kind { sequence, choice, repeat, chars, rule, token };
  Kind kind = Kind::sequence;
  std::vector<Node> parts = {};
  int least = 0, most = -1;                                // repeat; -1: no bound
  bool negated = false;                                    // chars, token
  std::vector<std::pair<uint32_t, uint32_t>> ranges = {};  // chars; one character when single
  std::string name = {};                                   // rule
  TokenId token = -1;
};

class Parser {
 public:
  Parser(std::string_view text, const Tokenizer* tokenizer, const std::string& param)
      : text_(text), tokenizer_(tokenizer), param_(param) {}

  std::map<std::string, Node> rules;
  std::map<std::string, size_t> used;  // rule: where it was named first

  void parse() {
    skip(true);
    while (at_ < text_.size()) {
      const size_t start = at_;
      const std::string name = word("a rule's name");
      skip(false);
      if (text_.substr(at_, 3) != "::=") wrong(at_, "expected \"::=\" after the rule's name");
      at_ += 3;
      skip(true);
      Node body = choice(0, false);
      if (!rules.emplace(name, std::move(body)).second) wrong(start, "the rule {} is defined twice", name);
      if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
        wrong(at_, "expected the end of the rule");
      skip(true);
    }
    if (!rules.contains("root")) wrong(at_, "there is no rule called root");
    for (const auto& [name, place] : used)
      if (!rules.contains(name)) wrong(place, "there is no rule called {}", name);
  }

  template <class... Args>
  [[noreturn]] void wrong(size_t place, fmt::format_string<Args...> form, Args&&... args) const {
    const auto before = text_.substr(0, std::min(place, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    fail_param(param_, "{}: line {}, column {}: {}", param_, line, before.size() - start + 1,
               fmt::format(form, std::forward<Args>(args)...));
  }

 private:
  static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Blanks and comments; with `lines` also over ends of lines.
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#')
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
        ++at_;
      else
        return;
    }
  }

  std::string word(const char* what) {
    const size_t start = at_;
    while (at_ < text_.size() && word_char(text_[at_])) ++at_;
    if (at_ == start) wrong(at_, "expected {}", what);
    return std::string(text_.substr(start, at_ - start));
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) wrong(at_, "expected {} hexadecimal digits", digits);
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) wrong(at_, "U+{:X} is no character", value);
    return value;
  }

  // One character of a literal or a class, escapes read.
  uint32_t character() {
    const auto lead = static_cast<unsigned char>(peek());
    if (at_ >= text_.size()) wrong(at_, "the grammar ends inside quotes or brackets");
    if (lead == '\\') {
      ++at_;
      const char c = peek();
      ++at_;
      switch (c) {
        case 'x':
          return hex(2);
        case 'u':
          return hex(4);
        case 'U':
          return hex(8);
        case 't':
          return '\t';
        case 'r':
          return '\r';
        case 'n':
          return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
          return static_cast<uint32_t>(c);
        default:
          wrong(at_ - 2, "unknown escape");
      }
    }
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                     : lead >= 0xE0                ? 2
                     : lead >= 0xC2                ? 1
                                                   : -1;
    if (more < 0 || at_ + static_cast<size_t>(more) >= text_.size()) wrong(at_, "not UTF-8");
    uint32_t value = more == 0 ? lead : lead & (0x3Fu >> more);
    for (++at_; const char c : text_.substr(at_, static_cast<size_t>(more))) {
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) wrong(at_, "not UTF-8");
      value = value << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
    }
    at_ += static_cast<size_t>(more);
    return value;
  }

  Node choice(int depth, bool nested) {
    if (depth > kMaxDepth) wrong(at_, "groups are nested deeper than {}", kMaxDepth);
    Node node{.kind = Node::Kind::choice};
    node.parts.push_back(sequence(depth, nested));
    while (peek() == '|') {
      ++at_;
      skip(true);
      node.parts.push_back(sequence(depth, nested));
    }
    return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
  }

  Node sequence(int depth, bool nested) {
    Node node;
    while (auto item = this->item(depth)) {
      skip(nested);
      node.parts.push_back(repeated(std::move(*item), nested));
    }
    return node;
  }

  std::optional<Node> item(int depth) {
    const char c = peek();
    if (c == '"') return literal();
    if (c == '[') return char_class();
    if (c == '.') {
      ++at_;
      return Node{.kind = Node::Kind::chars, .negated = true};
    }
    if (c == '(') {
      ++at_;
      skip(true);
      Node inner = choice(depth + 1, true);
      if (peek() != ')') wrong(at_, "expected \")\"");
      ++at_;
      return inner;
    }
    if (c == '<' || (c == '!' && at_ + 1 < text_.size() && text_[at_ + 1] == '<')) return token();
    if (word_char(c)) {
      const size_t start = at_;
      std::string name = word("a rule's name");
      used.emplace(name, start);
      return Node{.kind = Node::Kind::rule, .name = std::move(name)};
    }
    return std::nullopt;
  }

  Node literal() {
    Node node;
    for (++at_; peek() != '"';) {
      const uint32_t c = character();
      node.parts.push_back({.kind = Node::Kind::chars, .ranges = {{c, c}}});
    }
    ++at_;
    return node;
  }

  Node char_class() {
    Node node{.kind = Node::Kind::chars};
    ++at_;
    if (peek() == '^') node.negated = true, ++at_;
    while (peek() != ']') {
      const uint32_t low = character();
      uint32_t high = low;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        high = character();
        if (high < low) wrong(at_, "a range that ends before it begins");
      }
      node.ranges.emplace_back(low, high);
    }
    ++at_;
    if (node.ranges.empty() && !node.negated) wrong(at_, "an empty class matches nothing");
    return node;
  }

  Node token() {
    const size_t start = at_;
    Node node{.kind = Node::Kind::token};
    if (peek() == '!') node.negated = true, ++at_;
    const size_t end = text_.find('>', at_);
    if (end == std::string_view::npos) wrong(start, "expected \">\" behind a token");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (inside.size() > 2 && inside.front() == '[' && inside.back() == ']') {
      int64_t id = 0;
      for (char c : inside.substr(1, inside.size() - 2)) {
        if (c < '0' || c > '9' || id > INT32_MAX / 10) wrong(start, "expected a token's number in <[...]>");
        id = id * 10 + (c - '0');
      }
      node.token = static_cast<TokenId>(id);
    } else if (tokenizer_ != nullptr) {
      node.token = tokenizer_->token_id(fmt::format("<{}>", inside)).value_or(-1);
    }
    if (node.token < 0 || (tokenizer_ != nullptr && node.token >= tokenizer_->vocab_size()))
      wrong(start, "this vocabulary has no token <{}>", inside);
    return node;
  }

  Node repeated(Node item, bool nested) {
    while (true) {
      const size_t start = at_;
      Node outer{.kind = Node::Kind::repeat};
      switch (peek()) {
        case '*':
          ++at_;
          break;
        case '+':
          ++at_;
          outer.least = 1;
          break;
        case '?':
          ++at_;
          outer.most = 1;
          break;
        case '{':
          ++at_;
          bounds(outer, start);
          break;
        default:
          return item;
      }
      outer.parts.push_back(std::move(item));
      if (product(outer) > kMaxRepeat)
        wrong(start, "repetitions inside repetitions make more than {} copies", kMaxRepeat);
      item = std::move(outer);
      skip(nested);
    }
  }

  void bounds(Node& node, size_t start) {
    const auto number = [&]() -> std::optional<int> {
      int value = 0;
      const size_t first = at_;
      for (; peek() >= '0' && peek() <= '9'; ++at_) {
        value = value * 10 + (peek() - '0');
        if (value > kMaxRepeat) wrong(start, "more than {} repetitions", kMaxRepeat);
      }
      if (at_ == first) return std::nullopt;
      return value;
    };
    skip(false);
    const auto least = number();
    skip(false);
    if (peek() == ',') {
      ++at_;
      skip(false);
      const auto most = number();
      if (!least && !most) wrong(start, "expected {{n}}, {{n,}}, {{,m}} or {{n,m}}");
      node.least = least.value_or(0);
      node.most = most.value_or(-1);
    } else if (least) {
      node.least = node.most = *least;
    } else {
      wrong(start, "expected {{n}}, {{n,}}, {{,m}} or {{n,m}}");
    }
    skip(false);
    if (peek() != '}') wrong(at_, "expected \"}}\"");
    ++at_;
    if (node.most >= 0 && node.most < node.least) wrong(start, "a repetition whose most is under its least");
  }

  static int64_t product(const Node& node) {
    int64_t inner = 1;
    for (const Node& part : node.parts) inner = std::max(inner, product(part));
    if (node.kind == Node::Kind::repeat) inner *= std::max({1, node.least, node.most});
    return std::min<int64_t>(inner, kMaxRepeat + 1);
  }

  std::string_view text_;
  const Tokenizer* tokenizer_;
  const std::string& param_;
  size_t at_ = 0;
};

/// What follows from the rules: whether they may be empty, what they begin with, whether they come back to
/// themselves.
class RuleFacts {
 public:
  explicit RuleFacts(const Parser& parser) : parser_(parser) {
    for (bool grew = true; grew;) {
      grew = false;
      for (const auto& [name, body] : parser.rules)
        if (!empty_.contains(name) && may_be_empty(body)) empty_.insert(name), grew = true;
    }
  }

  void refuse_left_recursion() const {
    for (const auto& [name, body] : parser_.rules) {
      std::set<std::string> seen, todo;
      leading(body, todo);
      while (!todo.empty()) {
        const std::string next = *todo.begin();
        todo.erase(todo.begin());
        if (next == name)
          parser_.wrong(parser_.used.at(name), "the rule {} begins with itself (left recursion)", name);
        if (seen.insert(next).second) leading(parser_.rules.at(next), todo);
      }
    }
  }

  /// Rules, and tokens, that cannot be one expression.
  bool regular(const Node& node, std::vector<std::string>& path) const {
    if (node.kind == Node::Kind::token) return false;
    if (node.kind == Node::Kind::rule) {
      if (path.size() > static_cast<size_t>(kMaxDepth) ||
          std::find(path.begin(), path.end(), node.name) != path.end())
        return false;
      path.push_back(node.name);
      const bool ok = regular(parser_.rules.at(node.name), path);
      path.pop_back();
      return ok;
    }
    return std::all_of(node.parts.begin(), node.parts.end(),
                       [&](const Node& part) { return regular(part, path); });
  }

 private:
  bool may_be_empty(const Node& node) const {
    const auto empty = [&](const Node& part) { return may_be_empty(part); };
    switch (node.kind) {
      case Node::Kind::sequence:
        return std::all_of(node.parts.begin(), node.parts.end(), empty);
      case Node::Kind::choice:
        return std::any_of(node.parts.begin(), node.parts.end(), empty);
      case Node::Kind::repeat:
        return node.least == 0 || empty(node.parts[0]);
      case Node::Kind::rule:
        return empty_.contains(node.name);
      default:
        return false;
    }
  }

  void leading(const Node& node, std::set<std::string>& out) const {
    if (node.kind == Node::Kind::rule) out.insert(node.name);
    for (const Node& part : node.parts) {
      leading(part, out);
      if (node.kind == Node::Kind::sequence && !may_be_empty(part)) break;
    }
  }

  const Parser& parser_;
  std::set<std::string> empty_;
};

std::string bounds_text(const Node& node) {
  if (node.most < 0)
    return node.least == 0 ? "*" : node.least == 1 ? "+" : fmt::format("{{{},}}", node.least);
  if (node.least == 0 && node.most == 1) return "?";
  return fmt::format("{{{},{}}}", node.least, node.most);
}

std::string class_text(const Node& node) {
  if (node.ranges.empty()) return R"([\s\S])";
  std::string out = node.negated ? "[^" : "[";
  for (const auto& [low, high] : node.ranges)
    out += low == high ? fmt::format("\\u{{{:x}}}", low) : fmt::format("\\u{{{:x}}}-\\u{{{:x}}}", low, high);
  return out + "]";
}

/// The whole language as one expression; false when it grows too long.
bool write_regex(const Parser& parser, const Node& node, std::string& out) {
  if (out.size() > kMaxRegex) return false;
  switch (node.kind) {
    case Node::Kind::chars:
      out += class_text(node);
      return true;
    case Node::Kind::rule:
      return write_regex(parser, parser.rules.at(node.name), out);
    case Node::Kind::token:
      return false;
    default:
      break;
  }
  out += "(?:";
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (i > 0 && node.kind == Node::Kind::choice) out += '|';
    if (!write_regex(parser, node.parts[i], out)) return false;
  }
  out += ')';
  if (node.kind == Node::Kind::repeat) out += bounds_text(node);
  return true;
}

std::string rule_name(const std::string& name) {
  std::string out = "r_";
  for (char c : name)
    out += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')
               ? std::string(1, c)
               : fmt::format("_{:02x}_", static_cast<unsigned char>(c));
  return out;
}

void write_lark(const Node& node, std::string& out) {
  switch (node.kind) {
    case Node::Kind::chars:
      out += fmt::format("/{}/", class_text(node));
      return;
    case Node::Kind::rule:
      out += rule_name(node.name);
      return;
    case Node::Kind::token:
      out += fmt::format("<[{}{}]>", node.negated ? "^" : "", node.token);
      return;
    default:
      break;
  }
  if (node.parts.empty()) {
    out += "\"\"";
    return;
  }
  out += '(';
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (i > 0) out += node.kind == Node::Kind::choice ? " | " : " ";
    write_lark(node.parts[i], out);
  }
  out += ')';
  if (node.kind == Node::Kind::repeat) out += bounds_text(node);
}

}  // namespace

std::string gbnf_to_lark(std::string_view gbnf, const Tokenizer* tokenizer, const std::string& param) {
  Parser parser(gbnf, tokenizer, param);
  parser.parse();
  const RuleFacts facts(parser);
  facts.refuse_left_recursion();
  const Node& root = parser.rules.at("root");
  std::vector<std::string> path = {"root"};
  std::string regex;
  if (facts.regular(root, path) && write_regex(parser, root, regex))
    return fmt::format("start: /{}/\n", regex);
  std::string out = "start: r_root\n";
  for (const auto& [name, body] : parser.rules) {
    out += rule_name(name) + ": ";
    write_lark(body, out);
    out += '\n';
  }
  return out;
}

}  // namespace mlxcel
