#include "engine/loop/fault.h"

#include <new>
#include <string_view>

namespace mlxcel {

Error to_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return *own;
  if (is_out_of_memory(error)) return {ErrorKind::out_of_memory, "out of memory while evaluating the model"};
  return {ErrorKind::internal, fmt::format("evaluation failed: {}", error.what())};
}

bool is_out_of_memory(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->kind() == ErrorKind::out_of_memory;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  // MLX's allocators: "[malloc] Unable to allocate 123 bytes.", "[metal::malloc] ...".
  const std::string_view what = error.what();
  return what.find("malloc") != std::string_view::npos ||
         what.find("Unable to allocate") != std::string_view::npos;
}

}  // namespace mlxcel
