// The one attention over what rows remember: appends this step's keys and values to their rows' pages and
// lets every query see its own row's past. Parts call it and never see pages.
// Thread: model thread (graph building). Source: online softmax, Milakov & Gimelshein 2018; Dao 2022.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/selection.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

/// What choose_keys() found: a query sees nothing else.
struct KeyChoice {
  std::optional<array> bits;  // native kernels: kernels/selection.h
  std::vector<array> masks;   // reference: for each row of the step [sets, tokens, keys of whole pages] bool
};

struct AttendOptions {
  float scale = 1.0f;
  float softcap = 0.0f;               // 0: none; else cap * tanh(score / cap)
  std::optional<array> sinks = {};    // [heads] f32: a learned logit per head that takes part in the softmax
  const KeyChoice* chosen = nullptr;  // none: all keys
  std::optional<array> bias =
      {};  // [tokens, heads, reach] f32: added to the score of the key so many places back
};

/// q [tokens, heads, key_dim], k [tokens, kv_heads, key_dim], v [tokens, kv_heads, value_dim], all f32 on CPU
/// and already rotated -> [tokens, heads * value_dim]. `slot` is from StateLayout::add_kv; where its values
/// are part of its keys there is no v.
array attend(const array& q, const array& k, const std::optional<array>& v, Step& step, int slot,
             const AttendOptions& options);

/// Beside it [tokens, heads]: the natural logarithm of each query's sum of e^score (sinks are none of its
/// affair), by which attentions over several slots become one; minus infinity, and a result of zero, where a
/// query sees nothing.
std::pair<array, array> attend_level(const array& q, const array& k, const std::optional<array>& v,
                                     Step& step, int slot, const AttendOptions& options);

/// Of every `every` keys the last, for all of the step's queries that are not before it.
KeyChoice every_key(const Step& step, int every);

/// Appends index keys k [tokens, 1, dim] to a slot without values and chooses what the step's queries may
/// see; q [tokens, heads, dim], `weights` [tokens, heads] or none: kernels/selection.h.
KeyChoice choose_keys(const array& q, const array& k, const std::optional<array>& weights, Step& step,
                      int slot, const kernels::SelectionForm& form);

/// Where a slot's keys and values of this step go, for attention inside a program. Native kernels only.
struct AttendPlace {
  kernels::PagePool pool;
  std::shared_ptr<const kernels::AttentionRows> rows;
  int window = 0;
  int chunk = 0;
};
AttendPlace attend_place(Step& step, int slot);

/// What a row's tokens see of each other where nothing is remembered (encoders, embedders).
struct Sight {
  bool causal = false;
  int window = 0;  // 0: all; W: at most W - 1 tokens away
};
array attend_alone(const array& q, const array& k, const array& v, const Step& step,
                   const AttendOptions& options, const Sight& sight = {});

}  // namespace mlxcel
