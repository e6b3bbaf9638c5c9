#include "engine/loop/pattern.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <vector>

namespace mlxcel {
namespace {

constexpr int kMaxPattern = 4096;
constexpr LoopDetection kUsual{.max_pattern = 20, .min_pattern = 1, .min_count = 12};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

void check_loops(const LoopDetection& loops) {
  if (loops.max_pattern == 0) return;
  if (loops.max_pattern < 0 || loops.max_pattern > kMaxPattern)
    fail_param("max_pattern_size", "max_pattern_size: expected 0 (off) to {} tokens, found {}", kMaxPattern,
               loops.max_pattern);
  if (loops.min_pattern < 1 || loops.min_pattern > loops.max_pattern)
    fail_param("min_pattern_size", "min_pattern_size: expected 1 to max_pattern_size {}, found {}",
               loops.max_pattern, loops.min_pattern);
  if (loops.min_count < 2 || loops.min_count > kMaxPattern)
    fail_param("min_count", "min_count: expected 2 to {}, found {}", kMaxPattern, loops.min_count);
}

LoopDetection parse_loop_detection(std::string_view text) {
  const std::string word = lower(text);
  for (const char* off : {"off", "0", "false", "no"})
    if (word == off) return {};
  for (const char* on : {"on", "1", "true", "yes"})
    if (word == on) return kUsual;
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end && numbers.size() < 4) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next < end && *next != ',')) break;
    numbers.push_back(value);
    at = next < end ? next + 1 : next;
    if (at == end && next < end) numbers.clear();  // a trailing comma
  }
  if (at != end || numbers.size() != 3)
    fail_param("MLXCEL_LOOP_DETECTION", "MLXCEL_LOOP_DETECTION: \"{}\": expected on, off or MIN,MAX,COUNT",
               text);
  const LoopDetection loops{.max_pattern = numbers[1], .min_pattern = numbers[0], .min_count = numbers[2]};
  if (loops.max_pattern < 1)
    fail_param("MLXCEL_LOOP_DETECTION", "MLXCEL_LOOP_DETECTION: \"{}\": MAX: expected 1 or more", text);
  check_loops(loops);
  return loops;
}

std::optional<LoopDetection> loop_detection_from_environment() {
  const char* text = std::getenv("MLXCEL_LOOP_DETECTION");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return parse_loop_detection(text);
}

LoopDetection loops_in_force(const Request& request, const std::optional<LoopDetection>& environment,
                             std::string_view model_type) {
  if (request.loops.given || request.loops.max_pattern > 0) return request.loops;
  if (environment) return *environment;
  // These models fall into circles where something must be written that they do not want to write.
  if (model_type.starts_with("gemma4") && request.grammar.grammar) return kUsual;
  return {};
}

}  // namespace mlxcel
