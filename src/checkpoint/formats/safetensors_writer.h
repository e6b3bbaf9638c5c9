// Writes one safetensors file as a stream: the header from names, dtypes and shapes, then the bytes of each
// tensor in turn. The file appears under its name when finish() has succeeded.
// Owner: value. Thread: any one. Failure: internal for bytes that do not fit the declaration, invalid_request
// for declarations the format cannot hold.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace mlxcel {

class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  // the format's word: "BF16"
    Shape shape;
  };

  /// widest_first: every tensor is aligned; tensors() says the order. as_given: for writers that produce the
  /// planes of one weight together; some tensors may then be unaligned, which readers copy.
  enum class Order { widest_first, as_given };
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Tensor> tensors,
                    const std::map<std::string, std::string>& metadata = {},
                    Order order = Order::widest_first);
  const std::vector<Tensor>& tensors() const { return tensors_; }

  /// The next bytes; a tensor may come in several calls, and one call may span tensors.
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  std::vector<Tensor> tensors_;
  AtomicFile file_;
  uint64_t left_ = 0;
};

/// "BF16" for bfloat16; invalid_request for types the format lacks.
std::string safetensors_dtype(mx::Dtype dtype);

/// Evaluated arrays by name.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, array>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace mlxcel
