// Keys chosen by a fixed pattern of blocks, as KeyChoice for attend(). Thread: model thread.
#pragma once

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

}  // namespace mlxcel
