// Sparse attention: small index heads choose which keys each query meets; their own keys are part of what a
// row remembers. Owner: value. Thread: model thread. References: transformers DeepseekV32Indexer,
// GlmMoeDsaAttention, MiniMaxM3VLIndexer.
#pragma once

#include <memory>
#include <optional>

#include "nn/heads.h"
#include "nn/linear.h"
#include "nn/mla.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/attend.h"

namespace mlxcel {

/// Single keys, chosen by the sum over heads of weight * max(q k, 0): DeepSeek's indexer.
struct TokenIndexerOptions {
  int heads = 0;
  int head_dim = 0;
  int keep = 0;  // keys of each query
  std::optional<Rope> rope = {};
  /// index_n_heads, index_head_dim, index_topk and their publisher's defaults.
  static TokenIndexerOptions from(const Config& config, int default_heads, const Rope& rope);
};

/// Reads wq_b [heads * head_dim, q_rank], wk [head_dim, hidden], k_norm (LayerNorm), weights_proj [heads,
/// hidden].
class TokenIndexer {
 public:
  TokenIndexer(const Weights& w, int hidden, int q_rank, const TokenIndexerOptions& options);
  /// x [tokens, hidden], the queries' latent [tokens, q_rank].
  KeyChoice operator()(const array& x, const array& q_latent, Step& step) const;

 private:
  TokenIndexerOptions o_;
  Linear query_, key_, weights_;
  LayerNorm key_norm_;
  int slot_;
};

/// What layers hand on to those that make no choice of their own. One for a model.
using SharedChoice = std::shared_ptr<KeyChoice>;

/// Latent attention over chosen keys. Reads what Mla reads and "indexer", unless it takes the choice of a
/// layer before it.
class SparseMla : public Mla {
 public:
  bool phases(PhaseList& list) const = delete;  // those of plain latent attention are not its own
  SparseMla(const Weights& w, const MlaOptions& mla, const TokenIndexerOptions& indexer, SharedChoice shared,
            bool chooses);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;

 private:
  std::optional<TokenIndexer> indexer_;
  SharedChoice shared_;
};

/// Blocks of keys, chosen by each index head for its share of the kv heads: MiniMax-M3.
struct BlockIndexerOptions {
  int heads = 0;  // a divisor of kv_heads
  int head_dim = 0;
  int block = 128;
  int keep = 16;
  int local = 1;
};

/// Attention with norms over each head of q and k (weights stored around zero), which meets chosen blocks
/// where `indexer` is given. Reads q_proj k_proj v_proj o_proj q_norm k_norm and index_q_proj index_k_proj
/// index_q_norm index_k_norm.
class BlockAttention {
 public:
  BlockAttention(const Weights& w, const Dims& dims, float eps, const Rope& rope,
                 const std::optional<BlockIndexerOptions>& indexer);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;

 private:
  struct Indexer {
    BlockIndexerOptions o;
    Linear query, key;
    RmsNorm query_norm, key_norm;
    int slot;
  };
  KeyChoice choice(const array& x, Step& step) const;

  Linear qkv_, out_;
  HeadPlan plan_;
  std::optional<Indexer> indexer_;
  int slot_;
};

}  // namespace mlxcel
