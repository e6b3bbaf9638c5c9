// Embeddings of the last two, three ... tokens, hashed into tables of their own and averaged with the
// token's. Owner: value. Thread: model thread. Shapes: x [tokens, hidden], the tokens' embeddings -> the
// same. Reference: mlx-lm longcat_flash_ngram.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "nn/linear.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct NgramOptions {
  int vocab = 0;
  int hidden = 0;
  int longest = 4;        // tokens of the longest run
  int tables = 4;         // for each length from 2 on
  long long buckets = 0;  // of the first table; each has two more than the one before
  /// emb_neighbor_num, emb_split_num, ngram_vocab_size_ratio.
  static NgramOptions from(const Config& config, int vocab, int hidden);
};

/// Reads embedders.<i> [buckets + 2 i + 1, hidden / count] and post_projs.<i>.
class NgramMix {
 public:
  NgramMix(const Weights& w, const NgramOptions& options);
  array operator()(const array& x, Step& step) const;

 private:
  struct Table {
    int tokens;  // of its runs
    int64_t buckets;
    std::vector<int64_t> factors;  // of the token before, of the one before that ...
    Embedding table;
    Linear projection;
  };
  /// ids[s]: each token's s-th predecessor in its row, 0 before the row's first.
  std::vector<array> with_predecessors(Step& step) const;

  NgramOptions o_;
  std::vector<Table> tables_;
  int slot_;
};

}  // namespace mlxcel
