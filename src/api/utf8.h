// UTF-8 as bytes from outside: how long the valid prefix is, how many characters there are.
// Thread: any.
#pragma once

#include <cstddef>
#include <string_view>

namespace mlxcel {

/// Bytes of the well-formed sequence at the front of `text` (1 to 4), or 0 where there is none (Unicode 15,
/// D92).
size_t utf8_sequence(std::string_view text);
bool is_utf8(std::string_view text);
/// Characters that begin in `text`: every byte that is not a continuation byte.
size_t utf8_length(std::string_view text);

}  // namespace mlxcel
