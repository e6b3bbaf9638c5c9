// Work of a kind of its own as an operation of a program (program.h): what it reads and makes is said when
// the program is built, what it does is a function of plain memory. Recurrences use it. Owner: a Program.
// Thread: run() on workers of the pool, tasks in any order and side by side; it must not throw.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace mlxcel::kernels {

/// What a task sees of each thing that was named, in the order of naming.
struct WorkView {
  static constexpr size_t kMost = 6;
  const float* read[kMost] = {};  // values of the program
  ptrdiff_t stride[kMost] = {};   // floats from row to row of each
  const float* from[kMost] = {};  // arrays from outside
  float* made[kMost] = {};        // values that this work makes: rows without gaps
  float* given[kMost] = {};       // arrays that the node gives beside its value
};

struct WorkForm {
  std::vector<int> reads;                  // slots
  std::vector<array> arrays = {};          // f32
  std::vector<std::pair<int, int>> makes;  // rows, width
  std::vector<Shape> gives = {};           // f32
  int tasks = 1, grain = 1;
  long long multiply_adds = 0;
  std::function<void(const WorkView& view, int task)> run;
};

}  // namespace mlxcel::kernels
