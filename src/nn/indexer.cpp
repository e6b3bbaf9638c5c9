#include "nn/indexer.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

array by_head(const array& x, int heads, int head_dim) {
  return mx::reshape(x, {x.shape(0), heads, head_dim});
}

int add_index_keys(const Weights& w, int head_dim) {
  return w.layout().add_kv({.kv_heads = 1, .key_dim = head_dim, .value_dim = 0, .window = 0});
}

}  // namespace

TokenIndexerOptions TokenIndexerOptions::from(const Config& c, int default_heads, const Rope& rope) {
  TokenIndexerOptions o;
  o.heads = c.integer("index_n_heads", 1, 4096, default_heads);
  o.head_dim = c.integer("index_head_dim", 1, 4096, 128);
  o.keep = c.integer("index_topk", 1, kMaxPositions, 2048);
  const int rotated = 2 * static_cast<int>(rope.frequencies().size());
  if (o.head_dim < rotated)
    fail(ErrorKind::bad_checkpoint,
         "{}: index_head_dim {}: expected at least the {} entries that are rotated", c.where(), o.head_dim,
         rotated);
  o.rope = rope;
  return o;
}

TokenIndexer::TokenIndexer(const Weights& w, int hidden, int q_rank, const TokenIndexerOptions& options)
    : o_(options),
      query_(w.linear("wq_b", options.heads * options.head_dim, q_rank, Bias::none)),
      key_(w.linear("wk", options.head_dim, hidden, Bias::none)),
      weights_(w.linear("weights_proj", options.heads, hidden, Bias::none)),
      key_norm_(w.layer_norm("k_norm", options.head_dim, 1e-6f, Bias::required)),
      slot_(add_index_keys(w, options.head_dim)) {}

KeyChoice TokenIndexer::operator()(const array& x, const array& q_latent, Step& step) const {
  array q = by_head(query_(q_latent), o_.heads, o_.head_dim);
  array k = by_head(key_norm_(key_(x)), 1, o_.head_dim);
  if (o_.rope && !fault("index keys not rotated")) {
    q = (*o_.rope)(q, step);
    k = (*o_.rope)(k, step);
  }
  const array weights = mx::multiply(weights_(x), array(1.0f / std::sqrt(static_cast<float>(o_.heads))));
  return choose_keys(q, k, weights, step, slot_,
                     {.heads = o_.heads,
                      .scale = 1.0f / std::sqrt(static_cast<float>(o_.head_dim)),
                      .by_head = false,
                      .block = 1,
                      .keep = fault("one key fewer chosen") ? o_.keep - 1 : o_.keep,
                      .local = 0});
}

SparseMla::SparseMla(const Weights& w, const MlaOptions& mla, const TokenIndexerOptions& indexer,
                     SharedChoice shared, bool chooses)
    : Mla(w, mla), shared_(std::move(shared)) {
  if (o_.q_rank == 0)
    fail(ErrorKind::bad_checkpoint, "{}: q_lora_rank: expected a number, for the indexer reads that latent",
         w.path());
  if (chooses) indexer_.emplace(w / "indexer", o_.hidden, o_.q_rank, indexer);
}

array SparseMla::operator()(const array& x, Step& step, const Residual& residual) const {
  const Latents l = latents(x, step);
  if (indexer_) *shared_ = (*indexer_)(x, *l.q_latent, step);
  return output(seen(l, step, fault("choice of keys ignored") ? nullptr : shared_.get()), residual);
}

BlockAttention::BlockAttention(const Weights& w, const Dims& d, float eps, const Rope& rope,
                               const std::optional<BlockIndexerOptions>& indexer)
    : plan_{.heads = d.heads,
            .kv_heads = d.kv_heads,
            .head_dim = d.head_dim,
            .q_norm = w.rms_norm("q_norm", d.head_dim, eps, 1.0f),
            .k_norm = w.rms_norm("k_norm", d.head_dim, eps, 1.0f),
            .rope = rope},
      slot_(w.layout().add_kv({.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim})) {
  const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
  qkv_ = w.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, d.hidden, Bias::none);
  out_ = w.linear("o_proj", d.hidden, q, Bias::none);
  if (!indexer) return;
  const BlockIndexerOptions& o = *indexer;
  indexer_ = Indexer{o,
                     w.linear("index_q_proj", o.heads * o.head_dim, d.hidden, Bias::none),
                     w.linear("index_k_proj", o.head_dim, d.hidden, Bias::none),
                     w.rms_norm("index_q_norm", o.head_dim, eps, 1.0f),
                     w.rms_norm("index_k_norm", o.head_dim, eps, 1.0f),
                     add_index_keys(w, o.head_dim)};
}

KeyChoice BlockAttention::choice(const array& x, Step& step) const {
  const BlockIndexerOptions& o = indexer_->o;
  array q = indexer_->query_norm(by_head(indexer_->query(x), o.heads, o.head_dim));
  array k = indexer_->key_norm(by_head(indexer_->key(x), 1, o.head_dim));
  if (!fault("index keys not rotated")) {
    q = (*plan_.rope)(q, step);
    k = (*plan_.rope)(k, step);
  }
  return choose_keys(q, k, std::nullopt, step, indexer_->slot,
                     {.heads = o.heads,
                      .scale = 1.0f,
                      .by_head = true,
                      .block = o.block,
                      .keep = o.keep,
                      .local = fault("local blocks not kept") ? 0 : o.local});
}

array BlockAttention::operator()(const array& x, Step& step, const Residual& residual) const {
  const auto [q, k, v] = split_heads(qkv_(x), plan_, step);
  std::optional<KeyChoice> chosen;
  if (indexer_ && !fault("choice of keys ignored")) chosen = choice(x, step);
  const array seen = attend(q, k, v, step, slot_,
                            {.scale = 1.0f / std::sqrt(static_cast<float>(plan_.head_dim)),
                             .softcap = 0.0f,
                             .sinks = {},
                             .chosen = chosen ? &*chosen : nullptr});
  return out_(seen, residual);
}

}  // namespace mlxcel
