// Errors: exceptions inside, values at the edge. One type, a kind that the edges map to an exit code or
// an HTTP status, and a message that says what was expected, what was found, and where.
// Thread: any.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace mlxcel {

enum class ErrorKind {
  invalid_request,
  not_found,
  unsupported,
  bad_checkpoint,
  out_of_memory,
  cancelled,
  internal
};

/// The kind's name as it appears in logs, e.g. "bad_checkpoint".
const char* to_string(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  /// `param` names the request field or option at fault, as OpenAI's error shape carries it.
  Error(ErrorKind kind, const std::string& message, std::string param)
      : std::runtime_error(message), kind_(kind), param_(std::move(param)) {}
  ErrorKind kind() const { return kind_; }
  const std::string& param() const { return param_; }

 private:
  ErrorKind kind_;
  std::string param_;
};

/// fail(ErrorKind::bad_checkpoint, "{}: expected {}, checkpoint has {}", name, want, got)
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

/// The same, naming the request field or option at fault.
template <class... Args>
[[noreturn]] void fail_param(std::string param, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::invalid_request, fmt::format(text, std::forward<Args>(args)...), std::move(param));
}

}  // namespace mlxcel
