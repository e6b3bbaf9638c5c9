#include "state/pattern.h"

#include <algorithm>

#include "base/error.h"
#include "state/pages.h"

namespace mlxcel {

KeyChoice choose_pattern(const Step& step, const BlockPattern& pattern) {
  if (pattern.block < kPageTokens || pattern.block % kPageTokens != 0)
    fail(ErrorKind::internal, "blocks of {} keys, expected a multiple of {}", pattern.block, kPageTokens);
  const auto seen = [&](int position, int head, int page) {
    const int own = position / pattern.block, block = page * kPageTokens / pattern.block;
    return block <= own && (own - block < pattern.local || (block + head + 1) % pattern.stride == 0);
  };
  const auto pages_of = [](const StepRow& row) {
    return (row.position + row.count + kPageTokens - 1) / kPageTokens;
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

}  // namespace mlxcel
