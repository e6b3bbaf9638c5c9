// What coded pages make of keys and values, in plain operations: the twin of kernels/isa/attention_codes.h,
// for the reference kernels, whose pools hold what the codes stand for. Thread: model thread (graph
// building).
#pragma once

#include "kernels/isa/attention_call.h"
#include "tensor/tensor.h"

namespace mlxcel {

/// x [tokens, kv_heads, dim] f32 as pages of `type` would give it back; dense types: x itself. Parts [0,
/// split) and the rest have scales of their own; split 0 or dim: one part.
array as_kept(const array& x, kernels::PageType type, int split);

}  // namespace mlxcel
