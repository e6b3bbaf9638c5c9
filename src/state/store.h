// What a row remembers per layer: pages of keys and values, recurrent state. A model's parts declare what
// they keep while they are built (StateLayout); a StateStore then holds the pools, and hands out RowStates.
// Owner: the loaded model owns the store, the engine's sequences own RowStates (which must not outlive it).
// Thread: model thread. Failure: out_of_memory with both numbers when the page budget is spent; what threw
// changed nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/isa/attention_call.h"
#include "tensor/tensor.h"

namespace mlxcel {

inline constexpr int kPageTokens = 32;
/// Tokens behind the end that a row of windowed layers can always be truncated by.
inline constexpr int kRollbackTokens = 64;

struct KvSpec {
  int kv_heads = 0;
  int key_dim = 0;    // head_dim of keys
  int value_dim = 0;  // head_dim of values; 0: none are stored
  int window = 0;     // 0: all tokens; W: query i sees keys i-W+1 … i
  int chunk = 0;      // 0: none; C: query i sees keys i - i % C … i
  int block = 0;      // 0: none; B: blocks of B tokens see each other, as far as a step holds them
  int latent = 0;  // values are the first so many entries of keys, which are stored once; value_dim is then 0
};

/// How one slot's keys and values lie in pages (kv_mode.h makes these).
struct KvFormat {
  kernels::PageType keys, values;
  bool dense() const { return kernels::is_dense(keys) && keys == values; }
  bool operator==(const KvFormat&) const = default;
};

struct RecurrentSpec {
  std::string name;  // "conv", "ssm", for inspect
  Shape shape;       // per row, f32
};

/// Filled by parts at build time; slots are indices into the two lists.
class StateLayout {
 public:
  int add_kv(const KvSpec& spec);
  int add_recurrent(const RecurrentSpec& spec);
  /// Rows whose horizon (StepRow) is past `limit` are computed otherwise; `grows`: each length in its own
  /// way.
  void add_length_limit(int limit, bool grows);
  /// Rows of one regime may share what they remember.
  int regime(int horizon) const;
  const std::vector<KvSpec>& kv() const { return kv_; }
  const std::vector<RecurrentSpec>& recurrent() const { return recurrent_; }
  size_t kv_bytes_per_token(mx::Dtype dtype) const;
  /// One format a slot; what pages of 32 tokens take, over 32.
  size_t kv_bytes_per_token(const std::vector<KvFormat>& formats) const;
  size_t recurrent_bytes() const;

 private:
  std::vector<KvSpec> kv_;
  std::vector<RecurrentSpec> recurrent_;
  int limit_ = 0;
  bool grows_ = false;
};

class StateStore;

/// The recurrent part of a row after `length` tokens, in buffers of its own.
struct RecurrentSnapshot {
  int length = 0;
  std::vector<std::optional<array>> states;  // per recurrent slot; none: still zero
  size_t bytes() const;
};

/// One sequence's memory. Movable, not copyable; fork() shares pages copy-on-write.
class RowState {
 public:
  ~RowState();
  RowState(RowState&&) noexcept;
  RowState& operator=(RowState&&) noexcept;

  int length() const;  // tokens held
  /// Tokens of the prompt this row was made for; 0: not known yet.
  int horizon() const;
  void set_horizon(int tokens);
  /// Room for `count` more tokens; private copies of shared pages that will be written.
  void reserve(int count);
  void advance(int count);
  /// Forgets tokens from `length` on. Throws unsupported for recurrent layouts (snapshots do that; 0 is
  /// allowed) and where a windowed layer has let go of keys it would need: up to kRollbackTokens always work.
  void truncate(int length);
  RowState fork() const;

  /// Recurrent state as it is now; evaluates it.
  RecurrentSnapshot snapshot() const;
  /// Back to the moment of `snapshot`, whose tokens this row (or the one it was forked from) holds.
  void restore(const RecurrentSnapshot& snapshot);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  friend class StateStore;
  explicit RowState(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct StoreOptions {
  mx::Dtype kv_dtype = mx::float16;    // f16, bf16 or f32
  size_t max_tokens = 0;               // page budget in tokens over all rows; 0: half of available memory
  std::vector<KvFormat> formats = {};  // one a slot; empty: kv_dtype for all of them
};

class StateStore {
 public:
  StateStore(StateLayout layout, const StoreOptions& options);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  /// `horizon`: the tokens of the whole prompt, where it will come in several steps; 0: the first step has
  /// it.
  RowState make_row(int horizon = 0);
  const StateLayout& layout() const;
  mx::Dtype kv_dtype() const;
  /// Pages hold kPageTokens tokens of every layer. A layout without keys and values has no pages: all 0.
  int pages_free() const;
  int pages_total() const;
  /// Pages that a row of that many tokens takes at most (compare with pages_free()).
  int pages_for(size_t tokens) const;
  /// Memory that pages have taken so far; freed pages are used again before new memory is.
  size_t bytes() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
