// Text in lines of a width: help pages. Thread: main.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mlxcel::app {

/// Columns of a help page: 100, or a narrower terminal's own, but never under 60.
size_t help_width();
/// Broken at blanks; a longer word stands alone. One empty line for no text.
std::vector<std::string> wrapped(const std::string& text, size_t width);

}  // namespace mlxcel::app
