#include "base/error.h"

namespace mlxcel {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_request:
      return "invalid_request";
    case ErrorKind::not_found:
      return "not_found";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::bad_checkpoint:
      return "bad_checkpoint";
    case ErrorKind::out_of_memory:
      return "out_of_memory";
    case ErrorKind::cancelled:
      return "cancelled";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

}  // namespace mlxcel
