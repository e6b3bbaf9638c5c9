// Opens a model: an MLX / Hugging Face safetensors folder or a GGUF file (single or split). Every header is
// checked before any weight is read; a missing or cut shard is an error in well under a second.
// Owner: value. Thread: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/source.h"

namespace mlxcel {

/// GGUF key-value pairs as they stand in the file (tokenizer.ggml.* among them).
struct GgufValue;
using GgufArray =
    std::variant<std::vector<int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>>;
struct GgufValue {
  std::variant<int64_t, uint64_t, double, bool, std::string, GgufArray> value;
};
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

struct Checkpoint {
  std::filesystem::path path;  // folder or first .gguf file
  enum class Format { safetensors, gguf } format = Format::safetensors;
  Config config;                             // config.json, or GGUF metadata in the same spelling
  std::vector<int> eos_ids;                  // union of generation_config, config and GGUF keys
  Config generation_config;                  // generation_config.json; empty where absent
  std::shared_ptr<Source> source;            // names in the Hugging Face spelling, planes joined
  std::shared_ptr<const GgufMetadata> gguf;  // GGUF only
  std::vector<std::string> warnings;         // stale index, stray head, …
  size_t file_bytes = 0;
};

/// `path`: a folder with config.json and safetensors, a folder with exactly one GGUF model, a .gguf file, or
/// any part of a -NNNNN-of-NNNNN.gguf set. not_found where there is nothing; unsupported for what we do not
/// load.
Checkpoint open_checkpoint(const std::filesystem::path& path);

}  // namespace mlxcel
