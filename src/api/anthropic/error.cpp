#include "api/anthropic/error.h"

#include "api/json_writer.h"

namespace mlxcel::anthropic {
namespace {

std::string error_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 501:
      return error.type == "not_supported_error" ? "invalid_request_error" : "api_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

std::string print_error(const ApiError& error, const std::string& request_id) {
  JsonWriter out;
  out.begin_object().field("type", "error").key("error").begin_object();
  out.field("type", error_type(error)).field("message", error.message).end_object();
  if (!request_id.empty()) out.field("request_id", request_id);
  out.end_object();
  return out.take();
}

int error_status(const ApiError& error) { return error.status == 503 ? 529 : error.status; }

}  // namespace mlxcel::anthropic
