// Attention whose one key, which is its value as well, is seen twice: as it is inside a window, and pooled
// over runs of tokens behind it; the runs are all seen, or chosen by small index heads. Owner: value. Thread:
// model thread. Shapes: x [tokens, hidden] -> [tokens, hidden]. References: DeepSeek-V4 (2026), transformers
// DeepseekV4Attention.
#pragma once

#include <optional>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/attend.h"
#include "state/step.h"

namespace mlxcel {

struct KeyPoolOptions {
  int hidden = 0;
  int width = 0;         // of a pooled entry
  int run = 4;           // tokens of one, 2 or more
  bool overlap = false;  // an entry holds the run before it as well, through channels of its own
  float eps = 1e-6f;     // of its norm
  Rope rope;             // of its last entries, at its first token's position
};

/// One entry for each run of tokens, a sum weighed channel by channel. Reads kv_proj, gate_proj,
/// position_bias [run, width or 2 width] and kv_norm; rows keep what open runs hold.
class Pool {
 public:
  Pool(const Weights& w, const KeyPoolOptions& options);
  /// [tokens, 1, width]: the entry where a token closes its run, else zeros.
  array operator()(const array& x, Step& step) const;

 private:
  int channels() const { return o_.overlap ? 2 * o_.width : o_.width; }
  int history() const { return (o_.overlap ? 2 : 1) * o_.run - 1; }
  array pooled(const array& all, const std::vector<int32_t>& closing,
               const std::vector<int32_t>& start) const;

  KeyPoolOptions o_;
  Linear in_;
  array bias_;
  RmsNorm norm_;
  int slot_;
};

struct PoolIndexer {
  int heads = 0;
  int head_dim = 0;
  int keep = 0;  // entries of each query
};

struct PooledOptions {
  int hidden = 0;
  int heads = 0;
  int head_dim = 0;
  int q_rank = 0;
  int window = 0;
  int groups = 1;  // of heads, projected apart
  int rank = 0;    // of what each group gives
  float eps = 1e-6f;
  Rope rope;                               // of the last entries of queries, keys and answers (backwards)
  int run = 0;                             // 0: nothing is pooled
  std::optional<PoolIndexer> chosen = {};  // none: every entry is seen; else runs overlap
};

/// Reads q_a_proj, q_a_norm, q_b_proj, kv_proj, kv_norm, sinks, o_groups [groups, rank, …], o_b_proj, and
/// under "compressor" what Pool reads; under "compressor.indexer" that again, q_b_proj and weights_proj.
class PooledAttention {
 public:
  PooledAttention(const Weights& w, const PooledOptions& options);
  array operator()(const array& x, Step& step) const;

 private:
  struct Indexer {
    Pool pool;
    Linear query, weights;
    int slot;
  };
  array turned(const array& x, const Step& step, bool back = false) const;
  KeyChoice choice(const array& x, const array& q_latent, Step& step) const;
  /// What heads see of the window and of the pooled entries, [tokens, heads * head_dim].
  array seen(const array& q, const array& k, const array& x, const array& q_latent, Step& step) const;

  PooledOptions o_;
  Linear down_, q_, out_a_, out_b_;
  RmsNorm q_norm_, kv_norm_;
  array sinks_, group_ids_;
  int slot_;
  std::optional<Pool> pool_;
  std::optional<Indexer> indexer_;
  int pool_slot_ = -1;
};

}  // namespace mlxcel
