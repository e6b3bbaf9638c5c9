// The error answer of an HTTP API: status, OpenAI's type word, message, and the field at fault.
// Thread: any.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace mlxcel {

struct ApiError {
  int status = 500;
  std::string type = "server_error";
  std::string message;
  std::optional<std::string> param;
};

/// An answer other than the kinds of Error can say (401, 405, 413, 415, 429, 501, 503, …).
class Refusal : public std::runtime_error {
 public:
  explicit Refusal(ApiError error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const ApiError& error() const { return error_; }

 private:
  ApiError error_;
};

template <class... Args>
[[noreturn]] void refuse(int status, const char* type, fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal(ApiError{status, type, fmt::format(text, std::forward<Args>(args)...), std::nullopt});
}

/// The same, naming the field.
template <class... Args>
[[noreturn]] void refuse_param(int status, const char* type, std::string param,
                               fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal(ApiError{status, type, fmt::format(text, std::forward<Args>(args)...), std::move(param)});
}

ApiError to_api_error(const Error& error);
/// The exception in flight, whatever it is; only inside a catch block.
ApiError current_api_error();

/// {"error": {"message", "type", "param", "code"}}
std::string print_error(const ApiError& error);
/// {"error": message}, Ollama's shape
std::string print_plain_error(const ApiError& error);

}  // namespace mlxcel
