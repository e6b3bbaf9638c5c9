// What the packed products reach on this machine: bytes a second beside a plain read loop over as much
// memory, operations a second beside what the units can do with everything in registers; all in one run, in
// turn. Thread: any outside a pool region. Needs some 400 MB.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/matrix.h"

namespace mlxcel::kernels {

struct MachineLimits {
  double read = 0;  // bytes a second, all workers
  double bytes = 0, pairs = 0,
         floats = 0;  // operations a second (two for a multiply-add); bytes 0: no such products
};
/// One round of each; the median of `rounds`.
MachineLimits machine_limits(int rounds);

struct ProductFigure {
  std::string weights;  // "4-bit g32 3072x576"
  Precision precision = Precision::high;
  int tokens = 1;
  double seconds = 0;         // of one product, median
  double bytes_a_second = 0;  // of packed weights
  double read_share = 0;      // of a read loop in the same rounds
  double ops_a_second = 0;
  double peak_share = 0;   // of the byte products' peak (the set's fastest where it has none)
  double against_one = 1;  // time against one token's
};
/// Products of weights that no cache holds, of 1 to 512 tokens. `filter`: part of the weights' name. `seen`,
/// if any, gets each figure as it is made.
std::vector<ProductFigure> measure_products(int rounds, const std::string& filter,
                                            const std::function<void(const ProductFigure&)>& seen = {});

}  // namespace mlxcel::kernels
