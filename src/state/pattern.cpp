#include "state/pattern.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "state/pages.h"

namespace mlxcel {

namespace {

int pages_of(const StepRow& row) { return (row.position + row.count + kPageTokens - 1) / kPageTokens; }

}  // namespace

KeyChoice choose_pattern(const Step& step, const BlockPattern& pattern) {
  if (pattern.block < kPageTokens || pattern.block % kPageTokens != 0)
    fail(ErrorKind::internal, "blocks of {} keys, expected a multiple of {}", pattern.block, kPageTokens);
  const auto seen = [&](int position, int head, int page) {
    const int own = position / pattern.block, block = page * kPageTokens / pattern.block;
    return block <= own && (own - block < pattern.local || (block + head + 1) % pattern.stride == 0);
  };
  KeyChoice choice;
  if (kernel_mode() == KernelMode::native) {
    int words = 0;
    for (const StepRow& row : step.rows()) words = std::max(words, pages_of(row));
    const size_t each = static_cast<size_t>(pattern.heads) * static_cast<size_t>(words);
    std::vector<uint32_t> bits(static_cast<size_t>(step.count()) * each);
    for (const StepRow& row : step.rows())
      for (int i = 0; i < row.count; ++i)
        for (int at = 0; at < pattern.heads * words; ++at)
          if (seen(row.position + i, at / words, at % words))
            bits[static_cast<size_t>(row.first + i) * each + static_cast<size_t>(at)] = ~0u;
    choice.bits = array(bits.data(), {step.count(), pattern.heads, words}, mx::uint32);
    return choice;
  }
  for (const StepRow& row : step.rows()) {
    const int pages = pages_of(row);
    std::vector<uint8_t> mask;
    for (int head = 0; head < pattern.heads; ++head)
      for (int i = 0; i < row.count; ++i)
        for (int key = 0; key < pages * kPageTokens; ++key)
          mask.push_back(seen(row.position + i, head, key / kPageTokens) ? 1 : 0);
    choice.masks.push_back(mx::astype(
        array(mask.data(), {pattern.heads, row.count, pages * kPageTokens}, mx::uint8), mx::bool_));
  }
  return choice;
}

std::optional<KeyChoice> prompt_and_window(const Step& step, int window) {
  // Keys that a query at `position` does not see are a run: [horizon, first of the window).
  const auto far = [&](const StepRow& row, int position) {
    return std::pair(row.horizon, std::max(row.horizon, position - window + 1));
  };
  bool all = true;
  int words = 1;
  for (const StepRow& row : step.rows()) {
    const auto [from, to] = far(row, row.position + row.count - 1);
    all = all && from == to;
    words = std::max(words, pages_of(row));
  }
  if (all) return std::nullopt;
  KeyChoice choice;
  if (kernel_mode() == KernelMode::native) {
    const auto each = static_cast<size_t>(words);
    std::vector<uint32_t> bits(static_cast<size_t>(step.count()) * each, ~0u);
    for (const StepRow& row : step.rows())
      for (int i = 0; i < row.count; ++i) {
        uint32_t* const own = bits.data() + static_cast<size_t>(row.first + i) * each;
        const auto [from, to] = far(row, row.position + i);
        for (int key = from; key < to; ++key) own[key / kPageTokens] &= ~(1u << (key % kPageTokens));
      }
    choice.bits = array(bits.data(), {step.count(), 1, words}, mx::uint32);
    return choice;
  }
  for (const StepRow& row : step.rows()) {
    const int keys = pages_of(row) * kPageTokens;
    std::vector<uint8_t> mask;
    for (int i = 0; i < row.count; ++i) {
      const auto [from, to] = far(row, row.position + i);
      for (int key = 0; key < keys; ++key) mask.push_back(key < from || key >= to ? 1 : 0);
    }
    choice.masks.push_back(mx::astype(array(mask.data(), {1, row.count, keys}, mx::uint8), mx::bool_));
  }
  return choice;
}

}  // namespace mlxcel
