// Evaluated arrays over plain memory: fresh, or somebody else's (a mapped file, part of another array).
// No graph is built, so any thread may call these. Owner: the array holds its memory.
#pragma once

#include <cstddef>
#include <memory>

#include "tensor/tensor.h"

namespace mlxcel {

/// An uninitialised array; fill it through mutable_bytes before anyone else sees it.
array allocated(const Shape& shape, mx::Dtype dtype);
std::byte* mutable_bytes(array& evaluated);
const std::byte* bytes_of(const array& evaluated);

/// Views `data` without a copy and keeps `owner` alive as long as the memory is in use. On CPU MLX looks at
/// the 8 bytes in front of a buffer, so those must be readable. Where the backend cannot view foreign
/// memory the bytes are copied. MLX may reuse the memory for a result once nobody else holds the array.
array external(void* data, const Shape& shape, mx::Dtype dtype, std::shared_ptr<const void> owner);

/// Rows [begin, begin + count) of an evaluated row-contiguous array along axis 0, without a copy.
array row_view(const array& parent, int begin, int count);

}  // namespace mlxcel
