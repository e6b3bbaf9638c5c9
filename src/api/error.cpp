#include "api/error.h"

#include <new>

#include "api/json_writer.h"

namespace mlxcel {

ApiError to_api_error(const Error& error) {
  ApiError out;
  out.message = error.what();
  if (!error.param().empty()) out.param = error.param();
  switch (error.kind()) {
    case ErrorKind::invalid_request:
      out.status = 400;
      out.type = "invalid_request_error";
      break;
    case ErrorKind::not_found:
      out.status = 404;
      out.type = "not_found_error";
      break;
    case ErrorKind::unsupported:
      out.status = 501;
      out.type = "not_supported_error";
      break;
    case ErrorKind::cancelled:
      out.status = 503;
      out.type = "unavailable_error";
      break;
    case ErrorKind::bad_checkpoint:
    case ErrorKind::out_of_memory:
    case ErrorKind::internal:
      break;
  }
  return out;
}

ApiError current_api_error() {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return refusal.error();
  } catch (const Error& error) {
    return to_api_error(error);
  } catch (const std::bad_alloc&) {
    return {500, "server_error", "out of memory", std::nullopt};
  } catch (const std::exception& error) {
    return {500, "server_error", error.what(), std::nullopt};
  } catch (...) {
    return {500, "server_error", "unknown error", std::nullopt};
  }
}

std::string print_error(const ApiError& error) {
  JsonWriter out;
  out.begin_object().key("error").begin_object();
  out.field("message", error.message).field("type", error.type);
  out.key("param");
  error.param ? out.value(*error.param) : out.null();
  out.field("code", error.status).end_object().end_object();
  return out.take();
}

std::string print_plain_error(const ApiError& error) {
  JsonWriter out;
  out.begin_object().field("error", error.message).end_object();
  return out.take();
}

}  // namespace mlxcel
