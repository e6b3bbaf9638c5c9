#include "kernels/primitive.h"

#include <cstring>

namespace mlxcel::kernels {

void Gather::run() const {
  const size_t axes = shape.size();
  std::vector<int64_t> index(axes, 0);
  size_t count = 1;
  for (const auto extent : shape) count *= static_cast<size_t>(extent);
  const int64_t inner = axes ? shape.back() : 1;
  const int64_t step = (axes ? strides.back() : 1) * static_cast<int64_t>(itemsize);
  char* out = to;
  for (size_t done = 0; done < count; done += static_cast<size_t>(inner)) {
    int64_t offset = 0;
    for (size_t axis = 0; axis + 1 < axes; ++axis) offset += index[axis] * strides[axis];
    const char* row = from + offset * static_cast<int64_t>(itemsize);
    if (step == static_cast<int64_t>(itemsize)) {
      std::memcpy(out, row, static_cast<size_t>(inner) * itemsize);
      out += static_cast<size_t>(inner) * itemsize;
    } else {
      for (int64_t i = 0; i < inner; ++i, out += itemsize) std::memcpy(out, row + i * step, itemsize);
    }
    for (size_t axis = axes - (axes ? 1 : 0); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace mlxcel::kernels
