// How one tensor of a ruled source comes about: a tree whose leaves are tensors of the source below.
// Thread: any. Failure: bad_checkpoint naming the tensor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/source.h"

namespace mlxcel {

class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual WeightInfo info() const = 0;  // from headers
  virtual Weight load() = 0;            // its name is the caller's affair
  /// What an adapter adds to it, from what it adds to the leaves.
  virtual std::optional<LowRank> low_rank(const LowRankOf& of) const = 0;
};
using RecipePtr = std::shared_ptr<Recipe>;

RecipePtr leaf(std::shared_ptr<Source> source, std::string name);
/// `what` names the rule in messages; names[i] is the tensor behind parts[i].
RecipePtr stacked(std::vector<RecipePtr> parts, const std::vector<std::string>& names,
                  const std::string& what);
/// `sizes` are those of whole pieces; each is spread evenly over `groups` runs of the whole's axis 0.
std::vector<RecipePtr> pieces(RecipePtr whole, const std::vector<int>& sizes, int groups = 1);
/// The same along any axis (of planes: not the last).
std::vector<RecipePtr> pieces_along(RecipePtr whole, int axis, const std::vector<int>& sizes);
/// Entries i, i + count, i + 2 count, … for each i < count.
std::vector<RecipePtr> dealt(RecipePtr whole, int axis, int count);
/// [count * n, …] as [count, n, …].
RecipePtr unflattened(RecipePtr whole, int count);
/// The last two axes swapped; a quantised weight becomes dense, in 16 bits where its scales are.
RecipePtr transposed(RecipePtr whole);
RecipePtr shifted(RecipePtr dense, float constant);

}  // namespace mlxcel
