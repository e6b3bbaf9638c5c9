// What this room's tests of attention share: random tokens as steps take them, and both kinds of kernels.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "tensor/tensor.h"

namespace mlxcel::testing_rows {

using Values = std::vector<float>;

inline Values random_values(size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw;
  Values x(count);
  for (float& value : x) value = draw(engine);
  return x;
}

/// Tokens [from, from + count) of x [tokens, heads, dim].
inline array tokens_of(const Values& x, int heads, int dim, int from, int count) {
  return array(x.begin() + from * heads * dim, {count, heads, dim}, mx::float32);
}

/// Puts the kind of kernels back when a test ends.
class InMode {
 public:
  explicit InMode(KernelMode mode) : before_(kernel_mode()) { set_kernel_mode(mode); }
  ~InMode() { set_kernel_mode(before_); }
  InMode(const InMode&) = delete;
  InMode& operator=(const InMode&) = delete;

 private:
  KernelMode before_;
};

}  // namespace mlxcel::testing_rows
