// From one fused projection to attention's inputs: cuts q, k and v apart, norms and rotates q and k, in one
// pass over the tokens. Its twin is the same in plain parts (slices, RmsNorm, Rope), bit for bit on CPU.
// Thread: model thread.
#pragma once

#include <optional>

#include "nn/norm.h"
#include "nn/rope.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct HeadPlan {
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<RmsNorm> q_norm = {}, k_norm = {};  // over each head, before the rotation
  std::optional<Rope> rope = {};
};

/// q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim].
struct Heads {
  array q, k, v;
};

/// qkv [tokens, (heads + 2 kv_heads) * head_dim]: q, then k, then v.
Heads split_heads(const array& qkv, const HeadPlan& plan, const Step& step);
Heads split_heads_reference(const array& qkv, const HeadPlan& plan, const Step& step);

}  // namespace mlxcel
