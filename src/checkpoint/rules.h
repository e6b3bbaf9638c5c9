// Weight rules as data: how a checkpoint's tensors become the names and shapes that parts ask for. Patterns:
// `*` matches within or across dots, `#` matches a decimal index; both are carried to the target in order.
// Rules apply in order, lazily, tensor by tensor; `inspect` prints them.
// Failure: bad_checkpoint naming rule and tensor.
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
  std::vector<std::string> to;   // rename, stack: one; split: one per piece
  std::vector<int> sizes;        // split: along axis 0; empty = equal pieces
  float constant = 0.0f;         // add_constant

  std::string describe() const;  // "stack *.experts.#.up_proj.weight -> *.switch_mlp.up_proj.weight"
};

Rule rename(std::string from, std::string to);
/// Tensors numbered by `#` become one with a new leading axis; the numbers must be 0..n-1.
Rule stack(std::string from, std::string to);
Rule split(std::string from, std::vector<std::string> to, std::vector<int> sizes = {});
/// Swaps the last two axes of a dense tensor (Conv1D of GPT-2).
Rule transpose(std::string pattern);
Rule drop(std::string pattern);
Rule add_constant(std::string pattern, float constant);

/// A source seen through rules.
std::shared_ptr<Source> apply_rules(std::shared_ptr<Source> source, std::vector<Rule> rules);

}  // namespace mlxcel
