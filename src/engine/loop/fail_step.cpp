#include "engine/loop/fail_step.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace mlxcel {

FailStep FailStep::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  FailStep result;
  if (colon != std::string_view::npos && colon > 0) {
    result.route_ = text.substr(0, colon);
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), result.step_);
    if (error == std::errc() && end == number.data() + number.size() && result.step_ > 0) return result;
  }
  fail(ErrorKind::invalid_request, "MLXCEL_FAIL_STEP: expected ROUTE:N with N from 1, found \"{}\"", text);
}

std::optional<FailStep> FailStep::from_environment() {
  const char* text = std::getenv("MLXCEL_FAIL_STEP");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return parse(text);
}

}  // namespace mlxcel
