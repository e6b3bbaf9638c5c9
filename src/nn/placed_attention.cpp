#include "nn/placed_attention.h"

#include <cmath>

#include "nn/fault.h"

namespace mlxcel {

PlacedAttention::PlacedAttention(const Weights& w, const Dims& dims, const PlacedAttentionOptions& options)
    : plan_{.heads = dims.heads, .kv_heads = dims.kv_heads, .head_dim = dims.head_dim, .rope = options.rope},
      qkv_(w.fused({"q_proj", "k_proj", "v_proj"},
                   {dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim, dims.kv_heads * dims.head_dim},
                   dims.hidden)),
      out_(w.linear(options.out, dims.hidden, dims.heads * dims.head_dim)),
      slot_(w.layout().add_kv(
          {.kv_heads = dims.kv_heads, .key_dim = dims.head_dim, .value_dim = dims.head_dim})),
      scale_(options.scale > 0.0f ? options.scale : 1.0f / std::sqrt(static_cast<float>(dims.head_dim))),
      choice_(options.choice),
      chooses_(options.chooses) {}

array PlacedAttention::operator()(const array& x, Step& step, const Residual& residual) const {
  const auto [q, k, v] = split_heads(qkv_(x), plan_, step);
  AttendOptions how{.scale = scale_, .softcap = 0.0f, .sinks = {}};
  if (choice_ && !fault("choice of keys ignored")) {
    if (chooses_) choice_->now = choice_->choose(step);
    if (choice_->now) how.chosen = &*choice_->now;
  }
  return out_(attend(q, k, v, step, slot_, how), residual);
}

}  // namespace mlxcel
