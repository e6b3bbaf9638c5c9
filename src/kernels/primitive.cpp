#include "kernels/primitive.h"

#include <algorithm>
#include <cstring>

namespace mlxcel::kernels {

bool rows_are_whole(const array& a) {
  // Rows broadcast from one lie on each other: a stride of 0 reads as none given.
  if (a.ndim() < 2 || (a.shape()[0] > 1 && a.strides()[0] == 0)) return false;
  int64_t want = 1;
  for (size_t axis = a.ndim(); axis-- > 1;) {
    if (a.shape()[axis] != 1 && a.strides()[axis] != want) return false;
    want *= a.shape()[axis];
  }
  return true;
}

void Gather::run() const {
  // Trailing axes that follow each other in memory are copied as one run.
  size_t axes = shape.size();
  int64_t run = 1;
  const bool packed = axes == 0 || strides[axes - 1] == 1 || shape[axes - 1] == 1;
  if (packed)
    while (axes > 0 && (shape[axes - 1] == 1 || strides[axes - 1] == run)) run *= shape[--axes];
  size_t count = 1;
  for (size_t axis = 0; axis < axes; ++axis) count *= static_cast<size_t>(shape[axis]);
  const size_t bytes = static_cast<size_t>(run) * itemsize;
  const auto copy = [&](size_t begin, size_t end) {
    std::vector<int64_t> index(axes, 0);
    for (size_t axis = axes, rest = begin; axis-- > 0; rest /= static_cast<size_t>(shape[axis]))
      index[axis] = static_cast<int64_t>(rest % static_cast<size_t>(shape[axis]));
    char* out = to + begin * bytes;
    for (size_t i = begin; i < end; ++i, out += bytes) {
      int64_t offset = 0;
      for (size_t axis = 0; axis < axes; ++axis) offset += index[axis] * strides[axis];
      std::memcpy(out, from + offset * static_cast<int64_t>(itemsize), bytes);
      for (size_t axis = axes; axis-- > 0;) {
        if (++index[axis] < shape[axis]) break;
        index[axis] = 0;
      }
    }
  };
  constexpr size_t kParallelBytes = size_t{128} << 10;
  if (count * bytes < kParallelBytes) return copy(0, count);
  auto& pool = WorkerPool::shared();
  const size_t pieces = std::min(count, static_cast<size_t>(4 * pool.width()));
  pool.each(static_cast<int>(pieces), 1, [&](int piece, int) {
    const auto p = static_cast<size_t>(piece);
    copy(count * p / pieces, count * (p + 1) / pieces);
  });
}

}  // namespace mlxcel::kernels
