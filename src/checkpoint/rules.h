// Weight rules as data: how a checkpoint's tensors become the names and shapes that parts ask for. Patterns
// cover whole names: `*` matches any run, dots included, `#` a decimal index; each kind is carried to the
// target in order (stack keeps the last `#` for itself). Names are settled and checked from headers at once;
// data moves when a tensor is loaded. Quantised weights keep their planes through every rule but transpose,
// which gives dense values, and add_constant, which is for dense ones. `inspect` prints the rules.
// Thread: any; loading is plain memory work. Failure: bad_checkpoint naming rule and tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/source.h"

namespace mlxcel {

struct Rule {
  enum class Kind { rename, stack, split, deal, unflatten, transpose, drop, add_constant };
  Kind kind;
  std::string from;
  std::vector<std::string> to;  // rename, stack: one; split, deal: one per piece
  std::vector<int> sizes;       // split: empty = equal pieces; unflatten: the new leading extent
  int groups = 1;               // split: axis 0 is so many runs, each cut by sizes
  float constant = 0.0f;        // add_constant
  int axis = 0;                 // split, deal: negative from the end

  std::string describe() const;  // "stack *.experts.#.up_proj.weight -> *.switch_mlp.up_proj.weight"
};

Rule rename(std::string from, std::string to);
/// Tensors numbered by `#` become one with a new leading axis; the numbers must be 0..n-1.
Rule stack(std::string from, std::string to);
/// Cuts axis 0 (rows of codes and scales alike) into pieces of the given sizes, which must add up.
/// With groups, axis 0 is that many equal runs; a piece takes its rows of each (q, k, v head by head).
Rule split(std::string from, std::vector<std::string> to, std::vector<int> sizes = {}, int groups = 1);
/// Without groups along another axis (-2: the rows of every expert).
Rule split_axis(int axis, std::string from, std::vector<std::string> to, std::vector<int> sizes = {});
/// Deals the axis out in turn: entries 0, n, 2n, … to the first of n targets, 1, n + 1, … to the second.
Rule deal(int axis, std::string from, std::vector<std::string> to);
/// [count * n, …] becomes [count, n, …] (heads that lie one after another).
Rule unflatten(std::string pattern, int count);
/// kv_b_proj of latent attention, per head first key rows, then value rows, as the two banks that Mla reads.
std::vector<Rule> heads_of_kv_b(int heads, int key_rows, int value_rows);
/// Swaps the last two axes (Conv1D of GPT-2).
Rule transpose(std::string pattern);
Rule drop(std::string pattern);
/// Layers "<stem>.<first>" and `count - 1` behind it (next-token prediction).
std::vector<Rule> drop_layers(const std::string& stem, int first, int count);
/// Lists one after another.
std::vector<Rule> operator+(std::vector<Rule> a, std::vector<Rule> b);
/// Adds to every value of a dense float tensor; the result is f32.
Rule add_constant(std::string pattern, float constant);

/// A source seen through rules.
std::shared_ptr<Source> apply_rules(std::shared_ptr<Source> source, std::vector<Rule> rules);

}  // namespace mlxcel
