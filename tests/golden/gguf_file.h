// A golden as the GGUF file that llama.cpp's converter makes of it: gguf/NAME.json says which published
// values each tensor holds, and in what order (written by tools/golden/to_gguf.py). Thread: any one.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "golden.h"

namespace mlxcel::golden {

/// Where a golden's record lies, if it has one.
std::filesystem::path gguf_record(const std::string& name);

/// The file's bytes, and its general.architecture.
struct GgufGolden {
  std::string bytes, architecture;
};
GgufGolden gguf_golden(const Golden& golden);

/// Goldens that GGUF cannot say, each with the reason (gguf/reasons.json, by name or by model_type).
struct GgufReasons {
  std::map<std::string, std::string> names, types;
};
GgufReasons gguf_reasons();

}  // namespace mlxcel::golden
