#include "app/wrapped_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace mlxcel::app {

size_t help_width() {
  constexpr size_t kWidest = 100, kNarrowest = 60;
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return kWidest;
  return std::clamp<size_t>(window.ws_col, kNarrowest, kWidest);
}

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> out{""};
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const auto piece = text.substr(at, end - at);
    if (!out.back().empty() && out.back().size() + 1 + piece.size() > width) out.emplace_back();
    if (!out.back().empty()) out.back() += ' ';
    out.back() += piece;
    at = end + 1;
  }
  return out;
}

}  // namespace mlxcel::app
