// Logs: lines with time, level and target to stderr (or a sink of the application's), over spdlog. Every line
// passes the redactor first. Levels come from MLXCEL_LOG (also read as RUST_LOG): `level` or
// `target=level,...`. Without either, and until the application configures it, nothing is written.
// Thread: any. Failure: configure() throws invalid_request for text that names no level.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace mlxcel::log {

enum class Level { trace, debug, info, warn, error, off };

/// "trace" ... "off"; also llama.cpp's numbers: 0, 1 error, 2 warn, 3 info, 4 debug, 5 and above trace.
Level parse_level(std::string_view text);
const char* to_string(Level level);

/// Reads a filter: "info", "engine=debug", "warn,engine=trace,http=info".
/// `fallback` is the level of targets that the filter does not name.
void configure(std::string_view filter, Level fallback);
/// The filter of the environment, or `fallback` where it has none. Servers say info, offline commands off.
void configure_from_environment(Level fallback);

/// Where finished, redacted lines (without newline) go; null: stderr. Called under the log's lock.
void set_sink(std::function<void(Level level, std::string_view line)> sink);

/// Values that must never show (API keys): every occurrence becomes "[redacted]". Short ones (under six
/// bytes) are refused with invalid_request, since they would blot out ordinary words.
void hide(std::string_view secret);
/// What a line looks like after redaction: hidden values, "Bearer x", "sk-x", "hf_x", "api_key=x".
std::string redact(std::string_view line);

bool enabled(Level level, std::string_view target);
void write(Level level, std::string_view target, std::string_view text);

template <class... Args>
void write_if(Level level, std::string_view target, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(level, target)) write(level, target, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void trace(std::string_view target, fmt::format_string<Args...> text, Args&&... args) {
  write_if(Level::trace, target, text, std::forward<Args>(args)...);
}
template <class... Args>
void debug(std::string_view target, fmt::format_string<Args...> text, Args&&... args) {
  write_if(Level::debug, target, text, std::forward<Args>(args)...);
}
template <class... Args>
void info(std::string_view target, fmt::format_string<Args...> text, Args&&... args) {
  write_if(Level::info, target, text, std::forward<Args>(args)...);
}
template <class... Args>
void warn(std::string_view target, fmt::format_string<Args...> text, Args&&... args) {
  write_if(Level::warn, target, text, std::forward<Args>(args)...);
}
template <class... Args>
void error(std::string_view target, fmt::format_string<Args...> text, Args&&... args) {
  write_if(Level::error, target, text, std::forward<Args>(args)...);
}

}  // namespace mlxcel::log
