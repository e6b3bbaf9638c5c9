#include "checkpoint/formats/split_name.h"

#include <fmt/format.h>

namespace mlxcel {

namespace {

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::string SplitName::name(int wanted) const {
  return fmt::format("{}-{:05}-of-{:05}{}", stem, wanted, count, suffix);
}

std::optional<SplitName> parse_split_name(std::string_view name, std::string_view suffix) {
  constexpr std::string_view shape = "-00000-of-00000";
  if (!name.ends_with(suffix) || name.size() <= suffix.size() + shape.size()) return std::nullopt;
  const std::string_view body = name.substr(0, name.size() - suffix.size());
  const std::string_view numbers = body.substr(body.size() - shape.size());
  if (numbers[0] != '-' || numbers.substr(6, 4) != "-of-") return std::nullopt;
  const auto part = five_digits(numbers.substr(1, 5)), count = five_digits(numbers.substr(10, 5));
  if (!part || !count || *part < 1 || *part > *count) return std::nullopt;
  return SplitName{std::string(body.substr(0, body.size() - shape.size())), std::string(suffix), *part,
                   *count};
}

}  // namespace mlxcel
