#include "tensor/external.h"

#include <mlx/allocator.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace mlxcel {

namespace {

namespace alloc = mx::allocator;

// MLX's CPU buffers keep their size in front of the data. Measured on a buffer of its own rather than
// assumed; anything but zero or one word means another layout, and foreign memory is copied.
bool views_foreign_memory(std::ptrdiff_t& lead) {
  if (std::string_view(MLXCEL_BACKEND_NAME) != "cpu") return false;
  alloc::Data probe = alloc::malloc(64);
  alloc::Buffer buffer = probe.buffer();
  lead = static_cast<std::byte*>(buffer.raw_ptr()) - static_cast<std::byte*>(buffer.ptr());
  return lead == 0 || lead == 8;
}

size_t byte_count(const Shape& shape, mx::Dtype dtype) {
  size_t count = size_of(dtype);
  for (const int extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

}  // namespace

array allocated(const Shape& shape, mx::Dtype dtype) {
  return array(alloc::malloc(std::max<size_t>(byte_count(shape, dtype), 1)), shape, dtype);
}

std::byte* mutable_bytes(array& evaluated) { return reinterpret_cast<std::byte*>(evaluated.data<char>()); }
const std::byte* bytes_of(const array& evaluated) {
  return reinterpret_cast<const std::byte*>(evaluated.data<char>());
}

array external(void* data, const Shape& shape, mx::Dtype dtype, std::shared_ptr<const void> owner) {
  if (byte_count(shape, dtype) == 0) return allocated(shape, dtype);
  static std::ptrdiff_t lead = 0;
  static const bool views = views_foreign_memory(lead);
  if (!views) return array(data, shape, dtype, [owner = std::move(owner)](void*) {});
  alloc::Buffer buffer(static_cast<std::byte*>(data) - lead);
  return array(alloc::Data(buffer, [owner = std::move(owner)](alloc::Buffer) {}), shape, dtype);
}

array row_view(const array& parent, int begin, int count) {
  if (parent.ndim() == 0 || begin < 0 || count < 0 || begin + count > parent.shape(0))
    fail(ErrorKind::internal, "row_view: rows {} to {} of {}", begin, begin + count,
         to_string(parent.shape()));
  Shape shape = parent.shape();
  shape[0] = count;
  const size_t row = parent.shape(0) > 0 ? parent.nbytes() / static_cast<size_t>(parent.shape(0)) : 0;
  auto owner = std::make_shared<array>(parent);
  std::byte* data = mutable_bytes(*owner) + row * static_cast<size_t>(begin);
  return external(data, shape, parent.dtype(), std::move(owner));
}

}  // namespace mlxcel
