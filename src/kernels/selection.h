// Sparse key selection: which of a row's keys each query may see, by the products of small index heads with
// index keys that lie in pages of their own. A query's choice depends on its row alone, bit for bit. Thread:
// model thread (graph building). Sources: DeepSeek-V3.2 (2025), the indexer of sparse attention; MiniMax-M3,
// blocks of keys.
#pragma once

#include <memory>
#include <optional>

#include "kernels/attention.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

struct SelectionForm {
  int heads = 0;
  float scale = 1.0f;    // of a product
  bool by_head = false;  // every head chooses for itself; else one choice by sum of weight * max(product, 0)
  int block = 1;         // keys that are chosen together, worth as much as the best of them
  int keep = 1;          // blocks chosen
  int local = 0;         // of those the last ones up to the query's own, always chosen
  int every = 1;         // of so many keys only the last is one, which stands for them all; block is then 1
};

/// Appends index keys k [tokens, 1, dim] to their pages and chooses for the queries q [tokens, heads, dim];
/// `weights` [tokens, heads] of the heads unless by_head. Earlier keys win ties, keys behind the query are
/// never chosen, a query with no more blocks than `keep` sees them all.
/// -> uint32 [tokens, heads if by_head else 1, pages of the longest row]: bit j of word p is key 32 p + j.
/// CPU only.
array select_keys(const array& q, const array& k, const std::optional<array>& weights, const PagePool& pool,
                  std::shared_ptr<const AttentionRows> rows, const SelectionForm& form);

}  // namespace mlxcel::kernels
