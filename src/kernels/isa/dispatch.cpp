#include "kernels/isa/dispatch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace mlxcel::kernels {
namespace {

constexpr int kUnset = -1;
std::atomic<int> current{kUnset};

std::vector<Isa> detect() {
  std::vector<Isa> found{Isa::generic};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2) found.push_back(Isa::avx2);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni"))
    found.push_back(Isa::avx512);
#endif
  return found;
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "?";
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = detect();
  return found;
}

Isa parse_isa(std::string_view text, const std::vector<Isa>& available) {
  if (text.empty() || text == "auto") return available.back();
  std::string names;
  for (const Isa isa : available) {
    if (text == to_string(isa)) return isa;
    names += std::string(names.empty() ? "" : ", ") + to_string(isa);
  }
  fail(ErrorKind::invalid_request, "MLXCEL_CPU_ISA={}: expected auto or one this machine runs: {}", text,
       names);
}

Isa isa() {
  int value = current.load(std::memory_order_relaxed);
  if (value == kUnset) {
    const char* text = std::getenv("MLXCEL_CPU_ISA");
    const Isa chosen = parse_isa(text ? text : "", available_isas());
    current.compare_exchange_strong(value, static_cast<int>(chosen));
    value = current.load(std::memory_order_relaxed);
  }
  return static_cast<Isa>(value);
}

void set_isa(Isa isa) {
  const auto& here = available_isas();
  if (std::find(here.begin(), here.end(), isa) == here.end())
    fail(ErrorKind::invalid_request, "instruction set {} is not available on this machine", to_string(isa));
  current.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace mlxcel::kernels
