#include "checkpoint/rules/pattern.h"

#include <algorithm>

#include "base/error.h"

namespace mlxcel {

namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// Backtracking with a note of the pairs that failed, so that time is bounded by pattern x name.
struct Matcher {
  std::string_view pattern, name;
  std::vector<bool> failed = std::vector<bool>((pattern.size() + 1) * (name.size() + 1));
  std::vector<Capture> captures = {};

  bool at(size_t p, size_t n) {
    if (p == pattern.size()) return n == name.size();
    if (failed[p * (name.size() + 1) + n]) return false;
    if (step(p, n)) return true;
    failed[p * (name.size() + 1) + n] = true;
    return false;
  }

  bool step(size_t p, size_t n) {
    const char c = pattern[p];
    if (c == '*') {
      for (size_t end = n; end <= name.size(); ++end)
        if (captured('*', n, end, p)) return true;
      return false;
    }
    if (c == '#') {
      size_t end = n;
      while (end < name.size() && digit(name[end]) && end - n < 9) ++end;
      if (end == n || (end < name.size() && digit(name[end])) || (name[n] == '0' && end - n > 1))
        return false;
      return captured('#', n, end, p);
    }
    return n < name.size() && name[n] == c && at(p + 1, n + 1);
  }

  bool captured(char kind, size_t begin, size_t end, size_t p) {
    captures.push_back({kind, std::string(name.substr(begin, end - begin))});
    if (at(p + 1, end)) return true;
    captures.pop_back();
    return false;
  }
};

}  // namespace

std::optional<std::vector<Capture>> match(std::string_view pattern, std::string_view name) {
  const size_t literal = pattern.find_first_of("*#");
  if (literal == std::string_view::npos)
    return pattern == name ? std::optional<std::vector<Capture>>(std::vector<Capture>{}) : std::nullopt;
  if (!name.starts_with(pattern.substr(0, literal))) return std::nullopt;
  Matcher matcher{pattern, name};
  if (!matcher.at(0, 0)) return std::nullopt;
  return std::move(matcher.captures);
}

std::string fill(std::string_view pattern, const std::vector<Capture>& captures) {
  std::string out;
  size_t next[2] = {0, 0};
  for (const char c : pattern) {
    if (c != '*' && c != '#') {
      out.push_back(c);
      continue;
    }
    size_t& at = next[c == '#'];
    while (at < captures.size() && captures[at].kind != c) ++at;
    if (at == captures.size())
      fail(ErrorKind::internal, "rule target {}: more wildcards than its pattern", pattern);
    out += captures[at++].text;
  }
  return out;
}

size_t count_wildcards(std::string_view pattern, char kind) {
  return static_cast<size_t>(std::count(pattern.begin(), pattern.end(), kind));
}

}  // namespace mlxcel
