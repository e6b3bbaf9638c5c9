#include "engine/loop/fail_step.h"

#include <charconv>
#include <cstdlib>
#include <new>

#include "base/error.h"

namespace mlxcel {

FailStep FailStep::parse(std::string_view text) {
  FailStep result;
  constexpr std::string_view kMemory = ":memory";
  std::string_view rest = text;
  if (rest.ends_with(kMemory)) {
    result.memory_ = true;
    rest.remove_suffix(kMemory.size());
  }
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && colon > 0) {
    result.route_ = rest.substr(0, colon);
    const std::string_view number = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), result.step_);
    if (error == std::errc() && end == number.data() + number.size() && result.step_ > 0) return result;
  }
  fail(ErrorKind::invalid_request,
       "MLXCEL_FAIL_STEP: expected ROUTE:N or ROUTE:N:memory with N from 1, found \"{}\"", text);
}

void FailStep::strike(std::string_view route, uint64_t steps_done, uint64_t id) const {
  if (!hits(route, steps_done)) return;
  if (memory_) throw std::bad_alloc();
  fail(ErrorKind::internal, "MLXCEL_FAIL_STEP: step {} of request {} throws", step_, id);
}

std::optional<FailStep> FailStep::from_environment() {
  const char* text = std::getenv("MLXCEL_FAIL_STEP");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return parse(text);
}

}  // namespace mlxcel
