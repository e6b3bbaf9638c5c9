#include "checkpoint/formats/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/formats/safetensors.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

uint64_t element_size(const std::string& dtype) {
  const auto size = safetensors_element_size(dtype);
  if (!size) fail(ErrorKind::invalid_request, "safetensors has no dtype {}", dtype);
  return *size;
}

uint64_t byte_count(const SafetensorsWriter::Tensor& tensor) {
  uint64_t count = element_size(tensor.dtype);
  for (const int extent : tensor.shape) {
    if (extent < 0) fail(ErrorKind::invalid_request, "{}: shape {}", tensor.name, to_string(tensor.shape));
    count *= static_cast<uint64_t>(extent);
  }
  return count;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Tensor> tensors,
                                     const std::map<std::string, std::string>& metadata, Order order)
    : tensors_(std::move(tensors)), file_(path) {
  if (order == Order::widest_first)
    std::stable_sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
      return element_size(a.dtype) > element_size(b.dtype);
    });
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> seen;
  for (const Tensor& tensor : tensors_) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || !seen.insert(tensor.name).second)
      fail(ErrorKind::invalid_request, "{}: cannot name a tensor \"{}\" (again)", path.string(), tensor.name);
    const uint64_t end = left_ + byte_count(tensor);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", std::vector<int>(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {left_, end}}};
    left_ = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::byte length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  file_.write(length);
  file_.write(text);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > left_)
    fail(ErrorKind::internal, "safetensors writer: {} bytes given, {} declared", bytes.size(), left_);
  file_.write(bytes);
  left_ -= bytes.size();
}

void SafetensorsWriter::finish() {
  if (left_ > 0) fail(ErrorKind::internal, "safetensors writer: {} declared bytes never came", left_);
  file_.commit();
}

std::string safetensors_dtype(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::float64:
      return "F64";
    case mx::Dtype::Val::float32:
      return "F32";
    case mx::Dtype::Val::float16:
      return "F16";
    case mx::Dtype::Val::bfloat16:
      return "BF16";
    case mx::Dtype::Val::int8:
      return "I8";
    case mx::Dtype::Val::uint8:
      return "U8";
    case mx::Dtype::Val::int16:
      return "I16";
    case mx::Dtype::Val::uint16:
      return "U16";
    case mx::Dtype::Val::int32:
      return "I32";
    case mx::Dtype::Val::uint32:
      return "U32";
    case mx::Dtype::Val::int64:
      return "I64";
    case mx::Dtype::Val::uint64:
      return "U64";
    case mx::Dtype::Val::bool_:
      return "BOOL";
    default:
      fail(ErrorKind::invalid_request, "safetensors cannot hold complex numbers");
  }
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, array>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Tensor> declared;
  std::map<std::string, const array*> by_name;
  for (const auto& [name, value] : tensors) {
    declared.push_back({name, safetensors_dtype(value.dtype()), value.shape()});
    by_name[name] = &value;
  }
  SafetensorsWriter writer(path, std::move(declared), metadata);
  for (const auto& tensor : writer.tensors()) {
    const array& value = *by_name.at(tensor.name);
    writer.write({bytes_of(value), value.nbytes()});
  }
  writer.finish();
}

}  // namespace mlxcel
