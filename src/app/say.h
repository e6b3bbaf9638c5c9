// Diagnostics. stdout carries what was asked for, and a stdout that takes no more ends the command
// (guarded()); what cannot be written to stderr has nowhere else to go and ends nothing. Thread: any.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace mlxcel::app {

/// Writes at once what the stream takes. One that takes nothing (closed, disk full, reader gone) is as
/// before.
inline void offer(FILE* to, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
  std::clearerr(to);
}

/// Text on stderr.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  offer(stderr, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace mlxcel::app
