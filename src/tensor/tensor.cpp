#include "tensor/tensor.h"

#include <fmt/ranges.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace mlxcel {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

namespace {

KernelMode mode_from_environment() {
  const char* text = std::getenv("MLXCEL_KERNELS");
  const std::string_view value = text ? text : "";
  if (value == "reference") return KernelMode::reference;
  if (!value.empty() && value != "native")
    fail(ErrorKind::invalid_request, "MLXCEL_KERNELS={}: expected native or reference", value);
  return std::string_view(MLXCEL_BACKEND_NAME) == "cpu" ? KernelMode::native : KernelMode::reference;
}

std::atomic<KernelMode>& current_mode() {
  static std::atomic<KernelMode> mode{mode_from_environment()};
  return mode;
}

}  // namespace

KernelMode kernel_mode() { return current_mode().load(std::memory_order_relaxed); }
void set_kernel_mode(KernelMode mode) { current_mode().store(mode, std::memory_order_relaxed); }

}  // namespace mlxcel
