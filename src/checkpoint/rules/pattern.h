// Tensor-name patterns: `*` matches any run of characters, dots included, `#` a decimal index without leading
// zeros. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

/// What one wildcard of a pattern stood for.
struct Capture {
  char kind;  // '*' or '#'
  std::string text;
  bool operator==(const Capture&) const = default;
};

/// The captures in order when the whole of `name` matches; of several ways, the one with the shortest `*`s
/// from the left.
std::optional<std::vector<Capture>> match(std::string_view pattern, std::string_view name);

/// Fills the wildcards of `pattern` from the captures, each kind in its own order; left-over captures are
/// dropped. internal error where the pattern wants more than there are.
std::string fill(std::string_view pattern, const std::vector<Capture>& captures);

size_t count_wildcards(std::string_view pattern, char kind);

}  // namespace mlxcel
