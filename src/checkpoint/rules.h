// Weight rules as data: how a checkpoint's tensors become the names and shapes that parts ask for. Patterns
// cover whole names: `*` matches any run, dots included, `#` a decimal index; each kind is carried to the
// target in order (stack keeps the last `#` for itself). Names are settled and checked from headers at once;
// data moves when a tensor is loaded. Quantised weights keep their planes through every rule but transpose
// and add_constant, which are for dense ones. `inspect` prints the rules.
// Thread: any; loading is plain memory work. Failure: bad_checkpoint naming rule and tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/source.h"

namespace mlxcel {

struct Rule {
  enum class Kind { rename, stack, split, transpose, drop, add_constant };
  Kind kind;
  std::string from;
  std::vector<std::string> to;  // rename, stack: one; split: one per piece
  std::vector<int> sizes;       // split: along axis 0; empty = equal pieces
  int groups = 1;               // split: axis 0 is so many runs, each cut by sizes
  float constant = 0.0f;        // add_constant

  std::string describe() const;  // "stack *.experts.#.up_proj.weight -> *.switch_mlp.up_proj.weight"
};

Rule rename(std::string from, std::string to);
/// Tensors numbered by `#` become one with a new leading axis; the numbers must be 0..n-1.
Rule stack(std::string from, std::string to);
/// Cuts axis 0 (rows of codes and scales alike) into pieces of the given sizes, which must add up.
/// With groups, axis 0 is that many equal runs; a piece takes its rows of each (q, k, v head by head).
Rule split(std::string from, std::vector<std::string> to, std::vector<int> sizes = {}, int groups = 1);
/// Swaps the last two axes of a dense tensor (Conv1D of GPT-2).
Rule transpose(std::string pattern);
Rule drop(std::string pattern);
/// Adds to every value of a dense float tensor; the result is f32.
Rule add_constant(std::string pattern, float constant);

/// A source seen through rules.
std::shared_ptr<Source> apply_rules(std::shared_ptr<Source> source, std::vector<Rule> rules);

}  // namespace mlxcel
