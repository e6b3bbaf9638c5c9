// File names of numbered parts: "stem-00002-of-00005.gguf". Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mlxcel {

struct SplitName {
  std::string stem, suffix;
  int part = 0, count = 0;
  std::string name(int wanted) const;
};

/// Nothing where the name has no such numbers, or numbers that make no sense (part 0, part beyond count).
std::optional<SplitName> parse_split_name(std::string_view name, std::string_view suffix);

}  // namespace mlxcel
