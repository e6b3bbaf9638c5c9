#include "base/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#endif

#include "base/error.h"

namespace mlxcel {
namespace {

#ifndef __APPLE__
// The number after `key` in a "Key:   123 kB" file, in bytes.
std::optional<size_t> kilobytes_of(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) return std::nullopt;
    size_t value = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), value);
    return value * 1024;
  }
  return std::nullopt;
}

std::optional<size_t> number_in(const std::string& file) {
  std::ifstream in(file);
  size_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // "max", or no such file
}

std::optional<size_t> control_group_left() {
  // The process's own group at every level up to the root: the tightest limit counts.
  std::ifstream in("/proc/self/cgroup");
  std::optional<size_t> left;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::")) continue;
    std::string path = line.substr(3);
    while (true) {
      const std::string dir = "/sys/fs/cgroup" + path;
      const auto limit = number_in(dir + "/memory.max");
      const auto used = number_in(dir + "/memory.current");
      if (limit && used) left = std::min(left.value_or(SIZE_MAX), *limit > *used ? *limit - *used : 0);
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  const auto limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const auto used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (limit && used && *limit < (size_t{1} << 60))
    left = std::min(left.value_or(SIZE_MAX), *limit > *used ? *limit - *used : 0);
  return left;
}
#endif

size_t machine_memory() {
#ifdef __APPLE__
  uint64_t total = 0;
  size_t size = sizeof total;
  return sysctlbyname("hw.memsize", &total, &size, nullptr, 0) == 0 ? static_cast<size_t>(total) : 0;
#else
  size_t bytes = kilobytes_of("/proc/meminfo", "MemAvailable:").value_or(0);
  if (const auto left = control_group_left()) bytes = std::min(bytes, *left);
  return bytes;
#endif
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

size_t available_memory() {
  size_t bytes = machine_memory();
  if (const char* text = std::getenv("MLXCEL_MEMORY_LIMIT"); text != nullptr && *text != '\0') {
    const auto limit = parse_limit(text);
    if (!limit)
      fail(ErrorKind::invalid_request, "MLXCEL_MEMORY_LIMIT: expected bytes such as 8G, found \"{}\"", text);
    const size_t held = process_memory().resident;
    if (*limit > 0) bytes = std::min(bytes, *limit > held ? *limit - held : 0);
  }
  return bytes;
}

ProcessMemory process_memory() {
  ProcessMemory memory;
#ifdef __APPLE__
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count) ==
      KERN_SUCCESS) {
    memory.resident = info.resident_size;
    memory.peak = info.resident_size_max;
  }
#else
  memory.resident = kilobytes_of("/proc/self/status", "VmRSS:").value_or(0);
  memory.peak = kilobytes_of("/proc/self/status", "VmHWM:").value_or(0);
#endif
  return memory;
}

std::optional<size_t> parse_limit(std::string_view text) {
  std::string word(trimmed(text));
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word.empty() || word == "none" ? std::optional<size_t>(0) : parse_bytes(word);
}

std::optional<size_t> parse_bytes(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.ends_with("ib"))
    unit.resize(unit.size() - 2);
  else if (unit.size() == 2 && unit.ends_with("b"))
    unit.pop_back();
  double scale = 1;
  if (unit == "k")
    scale = 1024.0;
  else if (unit == "m")
    scale = 1024.0 * 1024;
  else if (unit == "g")
    scale = 1024.0 * 1024 * 1024;
  else if (unit == "t")
    scale = 1024.0 * 1024 * 1024 * 1024;
  else if (!unit.empty() && unit != "b")
    return std::nullopt;
  const double bytes = value * scale;
  if (bytes >= 9.0e18) return std::nullopt;
  return static_cast<size_t>(bytes);
}

std::string format_bytes(size_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) value /= 1024.0, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace mlxcel
