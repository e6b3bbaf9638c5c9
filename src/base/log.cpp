#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "base/error.h"

namespace mlxcel::log {
namespace {

constexpr std::string_view kHidden = "[redacted]";

struct Filter {
  Level fallback = Level::off;
  std::map<std::string, Level, std::less<>> targets;
};

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::trace:
      return spdlog::level::trace;
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

Level from_spdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
      return Level::trace;
    case spdlog::level::debug:
      return Level::debug;
    case spdlog::level::info:
      return Level::info;
    case spdlog::level::warn:
      return Level::warn;
    default:
      return Level::error;
  }
}

class CallSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit CallSink(std::function<void(Level, std::string_view)> call) : call_(std::move(call)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view view(line.data(), line.size());
    while (!view.empty() && (view.back() == '\n' || view.back() == '\r')) view.remove_suffix(1);
    call_(from_spdlog(message.level), view);
  }
  void flush_() override {}
  std::function<void(Level, std::string_view)> call_;
};

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("mlxcel", std::move(sink));
  logger->set_level(spdlog::level::trace);  // the filter decides
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%-5!l%$ %v", spdlog::pattern_time_type::utc);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

std::optional<std::string> environment_filter() {
  for (const char* name : {"MLXCEL_LOG", "RUST_LOG"})
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0') return text;
  return std::nullopt;
}

Filter parse_filter(std::string_view text, Level fallback) {
  Filter filter{.fallback = fallback, .targets = {}};
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (part.empty()) continue;
    if (const size_t equals = part.find('='); equals != std::string_view::npos)
      filter.targets.insert_or_assign(std::string(part.substr(0, equals)),
                                      parse_level(part.substr(equals + 1)));
    else
      filter.fallback = parse_level(part);
  }
  return filter;
}

struct State {
  std::shared_mutex mutex;
  Filter filter;
  std::vector<std::string> secrets;
  std::shared_ptr<spdlog::logger> logger = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  std::atomic<Level> lowest{Level::off};  // the filter's most talkative level: most calls end here

  State() {
    if (const auto text = environment_filter()) {
      try {
        filter = parse_filter(*text, Level::off);
      } catch (const Error&) {
        filter = {};  // configure_from_environment() reports it; logging alone must not end a program
      }
    }
    update_lowest();
  }
  void update_lowest() {
    Level level = filter.fallback;
    for (const auto& [name, value] : filter.targets) level = std::min(level, value);
    lowest = level;
  }
};

State& state() {
  // Never destroyed: threads may log while the process ends.
  static State* instance = new State;
  return *instance;
}

bool is_token_byte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '~' ||
         c == '+' || c == '/' || c == '=';
}

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
         });
}

// Replaces the run of token bytes after each `prefix`; prefixes that are part of a secret go with it.
void hide_after(std::string& line, std::string_view prefix, bool keep_prefix, size_t shortest) {
  for (size_t at = 0; at + prefix.size() < line.size(); ++at) {
    if (!same_ignoring_case(std::string_view(line).substr(at, prefix.size()), prefix)) continue;
    if (at > 0 && std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0) continue;
    const size_t start = at + prefix.size();
    size_t end = start;
    while (end < line.size() && is_token_byte(line[end])) ++end;
    if (end - start < shortest) continue;
    const size_t from = keep_prefix ? start : at;
    line.replace(from, end - from, kHidden);
    at = from + kHidden.size() - 1;
  }
}

std::string redact_with(std::string_view text, const std::vector<std::string>& secrets) {
  std::string line(text);
  for (const auto& secret : secrets)
    for (size_t at = 0; (at = line.find(secret, at)) != std::string::npos; at += kHidden.size())
      line.replace(at, secret.size(), kHidden);
  hide_after(line, "bearer ", true, 1);
  for (const char* name : {"api_key=", "api-key=", "apikey=", "api-key: ", "token=", "password="})
    hide_after(line, name, true, 1);
  for (const char* prefix : {"sk-", "hf_"}) hide_after(line, prefix, false, 8);
  return line;
}

}  // namespace

Level parse_level(std::string_view text) {
  static constexpr std::array<Level, 6> kAll = {Level::trace, Level::debug, Level::info,
                                                Level::warn,  Level::error, Level::off};
  for (Level level : kAll)
    if (same_ignoring_case(text, to_string(level))) return level;
  if (same_ignoring_case(text, "warning")) return Level::warn;
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') {
    static constexpr std::array<Level, 5> kNumbers = {Level::error, Level::error, Level::warn, Level::info,
                                                      Level::debug};
    const auto number = static_cast<size_t>(text[0] - '0');
    return number < kNumbers.size() ? kNumbers[number] : Level::trace;
  }
  fail(ErrorKind::invalid_request,
       "log level \"{}\": expected trace, debug, info, warn, error, off or 0 to 9", text);
}

const char* to_string(Level level) {
  switch (level) {
    case Level::trace:
      return "trace";
    case Level::debug:
      return "debug";
    case Level::info:
      return "info";
    case Level::warn:
      return "warn";
    case Level::error:
      return "error";
    case Level::off:
      break;
  }
  return "off";
}

void configure(std::string_view filter, Level fallback) {
  Filter parsed = parse_filter(filter, fallback);
  State& s = state();
  const std::unique_lock lock(s.mutex);
  s.filter = std::move(parsed);
  s.update_lowest();
}

void configure_from_environment(Level fallback) { configure(environment_filter().value_or(""), fallback); }

void set_sink(std::function<void(Level, std::string_view)> sink) {
  State& s = state();
  const std::unique_lock lock(s.mutex);
  if (sink)
    s.logger = make_logger(std::make_shared<CallSink>(std::move(sink)));
  else
    s.logger = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

void hide(std::string_view secret) {
  if (secret.size() < 6)
    fail(ErrorKind::invalid_request, "a secret to hide in logs has {} bytes: expected at least 6",
         secret.size());
  State& s = state();
  const std::unique_lock lock(s.mutex);
  if (std::find(s.secrets.begin(), s.secrets.end(), secret) == s.secrets.end())
    s.secrets.emplace_back(secret);
}

std::string redact(std::string_view line) {
  State& s = state();
  const std::shared_lock lock(s.mutex);
  return redact_with(line, s.secrets);
}

bool enabled(Level level, std::string_view target) {
  State& s = state();
  if (level == Level::off || level < s.lowest.load(std::memory_order_relaxed)) return false;
  const std::shared_lock lock(s.mutex);
  const auto found = s.filter.targets.find(target);
  return level >= (found == s.filter.targets.end() ? s.filter.fallback : found->second);
}

void write(Level level, std::string_view target, std::string_view text) {
  State& s = state();
  std::shared_ptr<spdlog::logger> logger;
  std::string redacted;
  {
    const std::shared_lock lock(s.mutex);
    logger = s.logger;
    redacted = redact_with(text, s.secrets);
  }
  // One record a line, so that a request's text cannot forge the head of another record.
  for (size_t at = 0; at <= redacted.size();) {
    const size_t end = std::min(redacted.find('\n', at), redacted.size());
    std::string line = redacted.substr(at, end - at);
    std::replace_if(
        line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 32 && c != '\t'; },
        ' ');
    logger->log(to_spdlog(level), "{}: {}", target, line);
    at = end + 1;
  }
}

}  // namespace mlxcel::log
