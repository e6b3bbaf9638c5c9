// A file that a checkpoint may lack. For .cpp files of this room.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"

namespace mlxcel {

/// Its text, or nothing where there is no such file. `limit` bytes at most.
inline std::optional<std::string> read_optional(const std::filesystem::path& path, size_t limit) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return read_file(path, limit);
}

}  // namespace mlxcel
