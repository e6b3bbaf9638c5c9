// Keys chosen by their place alone, as KeyChoice for attend(). Thread: model thread.
#pragma once

#include <optional>

#include "state/attend.h"

namespace mlxcel {

/// Blocks of keys that each head sees: the last `local` ones and those whose number plus the head's is a
/// multiple of `stride`, counted from one.
struct BlockPattern {
  int heads = 0;
  int block = 64;  // keys; a multiple of a page's
  int local = 1;
  int stride = 1;
};
KeyChoice choose_pattern(const Step& step, const BlockPattern& pattern);

/// All keys of a row's prompt (StepRow::horizon), and of what was written behind it the last `window`, the
/// query's own among them; none where every query sees all keys that are not behind it. Rows whose prompts
/// differ in length remember differently: StateLayout::add_length_limit().
std::optional<KeyChoice> prompt_and_window(const Step& step, int window);

}  // namespace mlxcel
