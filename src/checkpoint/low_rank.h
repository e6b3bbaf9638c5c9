// What an adapter adds to a weight: the product of two thin factors, which goes through the rules that its
// weight goes through (checkpoint/rules.h) without ever being multiplied out.
// Owner: value; plain memory. Thread: any. Failure: unsupported where a rule leaves no thin factors.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace mlxcel {

struct LowRank {
  int count = 0;  // matrices on a leading axis (experts, heads); 0: one matrix
  int rows = 0, columns = 0, rank = 0;
  std::vector<float> left = {};   // [rows, rank] of each
  std::vector<float> right = {};  // [rank, columns] of each

  Shape shape() const { return count == 0 ? Shape{rows, columns} : Shape{count, rows, columns}; }
  size_t members() const { return count == 0 ? 1 : static_cast<size_t>(count); }
  /// The whole product, row-major, as `shape()`.
  std::vector<float> product() const;
};

/// What is added to a weight of the file below, which has this shape; nothing where no adapter touches it.
using LowRankOf = std::function<std::optional<LowRank>(const std::string& name, const Shape& shape)>;

// The rules' counterparts. `axis` counts those of the weight; `what` names it in messages.
/// Entries `first`, `first + step`, … of an axis, `entries` of them.
LowRank picked(const LowRank& whole, int axis, int first, int step, int entries);
/// Rows [begin, begin + taken) of each of `groups` equal runs.
LowRank picked_in_groups(const LowRank& whole, int begin, int taken, int groups);
/// [count * n, columns] as [count, n, columns].
LowRank unflattened(const LowRank& whole, int count, const std::string& what);
/// The last two axes swapped.
LowRank transposed(const LowRank& whole);
/// Matrices of shape [rows, columns] on a new leading axis; nothing where none of them is touched.
std::optional<LowRank> stacked(const std::vector<std::optional<LowRank>>& parts, const std::string& what);

}  // namespace mlxcel
