// The safetensors container: header checks before anything is read, tensors as views of the file.
// Reference: the format's description in the safetensors repository. Thread: any.
// Failure: bad_checkpoint naming file and tensor; unsupported for dtypes that have no array type here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace mlxcel {

/// A tensor as a header declares it: the range lies inside the file and fits shape and dtype.
struct StoredTensor {
  std::shared_ptr<const File> file;
  std::string dtype;  // the file's word: "BF16"
  Shape shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
};
using StoredTensors = std::map<std::string, StoredTensor>;

/// Adds one file's tensors; a name already there is an error naming both files.
void read_safetensors_header(const std::shared_ptr<const File>& file, StoredTensors& into,
                             std::vector<std::string>& warnings);

/// Bytes of one element; nothing for a word the format does not know.
std::optional<uint64_t> safetensors_element_size(const std::string& dtype);
/// The array type a dtype is held as (F64 becomes float32); unsupported for fp8.
mx::Dtype held_dtype(const StoredTensor& tensor, const std::string& name);
/// A view of the file where the data is aligned, else a copy.
array load_stored(const StoredTensor& tensor, const std::string& name);

/// Every tensor of a folder's shards: found by globbing, checked against the index.
StoredTensors read_safetensors_folder(const std::filesystem::path& folder, std::vector<std::string>& warnings,
                                      size_t& file_bytes);
bool has_safetensors(const std::filesystem::path& folder);

}  // namespace mlxcel
