#include "kernels/isa/dispatch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/error.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace mlxcel::kernels {
namespace {

constexpr int kUnset = -1;
std::atomic<int> current{kUnset};

#if defined(__aarch64__)
struct Features {
  bool dot = false, i8mm = false;
};
Features features() {
#if defined(__linux__)
  constexpr unsigned long kDot = 1ul << 20, kI8mm = 1ul << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
  return {(getauxval(AT_HWCAP) & kDot) != 0, (getauxval(AT_HWCAP2) & kI8mm) != 0};
#elif defined(__APPLE__)
  const auto has = [](const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  return {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM")};
#else
  return {};
#endif
}
#endif

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
#elif defined(__aarch64__)
  const Features here = features();
  if (here.dot) found.push_back(Isa::neon);
  if (here.dot && here.i8mm) found.push_back(Isa::i8mm);
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
    case Isa::neon:
      return "neon";
    case Isa::i8mm:
      return "i8mm";
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
