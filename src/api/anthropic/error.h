// Errors in Anthropic's shape: {"type": "error", "error": {"type", "message"}, "request_id"}.
#pragma once

#include <string>

#include "api/error.h"

namespace mlxcel::anthropic {

std::string print_error(const ApiError& error, const std::string& request_id);
/// "Overloaded" has a status of its own there.
int error_status(const ApiError& error);

}  // namespace mlxcel::anthropic
