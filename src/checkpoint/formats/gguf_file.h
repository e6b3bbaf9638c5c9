// The GGUF container, versions 2 and 3, little endian: key-value pairs and the table of tensors, every count,
// length and offset checked against the file before it is believed.
// Reference: the GGUF specification in the ggml repository. Thread: any.
// Failure: bad_checkpoint naming file, key or tensor; unsupported for versions and tensor types we do not
// read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint.h"

namespace mlxcel {

enum class GgmlType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  i32 = 26,
  bf16 = 30,
  mxfp4 = 39,
};

/// Elements and bytes of a block, for the types we hold.
struct GgmlTypeRow {
  GgmlType type;
  const char* name;
  int elements;
  int bytes;
};
const GgmlTypeRow* find_ggml_type(uint32_t type);
/// "IQ4_XS" for types that exist but are not read; "type 77" beyond.
std::string ggml_type_name(uint32_t type);

struct GgufTensor {
  std::shared_ptr<const File> file;
  const GgmlTypeRow* type = nullptr;
  Shape shape;          // slowest axis first, as safetensors has it
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
};

struct GgufContents {
  GgufMetadata metadata;  // the first part's
  std::map<std::string, GgufTensor> tensors;
  size_t file_bytes = 0;
  std::filesystem::path first;  // the first part
};

/// One file, or the set any part of which is given.
GgufContents read_gguf(const std::filesystem::path& path);

// Typed, bounded reads of metadata; nothing where the key is absent, bad_checkpoint where it is of another
// type.
std::optional<int64_t> gguf_integer(const GgufMetadata& metadata, std::string_view key, int64_t low,
                                    int64_t high);
std::optional<double> gguf_number(const GgufMetadata& metadata, std::string_view key);
std::optional<bool> gguf_bool(const GgufMetadata& metadata, std::string_view key);
std::optional<std::string> gguf_string(const GgufMetadata& metadata, std::string_view key);

}  // namespace mlxcel
