#include "engine/loop/fault.h"

#include <new>

namespace mlxcel {

Error to_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return *own;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {ErrorKind::out_of_memory, "out of memory while evaluating the model"};
  return {ErrorKind::internal, fmt::format("evaluation failed: {}", error.what())};
}

}  // namespace mlxcel
