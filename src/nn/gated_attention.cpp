#include "nn/gated_attention.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

GatedAttention::GatedAttention(const Weights& w, const Dims& dims, const GatedAttentionOptions& options)
    : d_(dims),
      qkv_(w.fused(
          {"q_proj", "k_proj", "v_proj"},
          {2 * dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim, dims.kv_heads * dims.head_dim},
          dims.hidden, options.bias)),
      out_(w.linear("o_proj", dims.hidden, dims.heads * dims.head_dim, options.bias)),
      q_norm_(w.rms_norm("q_norm", dims.head_dim, options.eps)),
      k_norm_(w.rms_norm("k_norm", dims.head_dim, options.eps)),
      rope_(options.rope),
      slot_(w.layout().add_kv(
          {.kv_heads = dims.kv_heads, .key_dim = dims.head_dim, .value_dim = dims.head_dim})) {}

array GatedAttention::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0), dim = d_.head_dim, q_width = 2 * d_.heads * dim,
            kv_width = d_.kv_heads * dim;
  const array all = qkv_(x);
  const auto part = [&](int from, int heads, int width) {
    return mx::reshape(mx::slice(all, {0, from}, {tokens, from + heads * width}), {tokens, heads, width});
  };
  const array both = part(0, d_.heads, 2 * dim);
  array q = mx::slice(both, {0, 0, 0}, {tokens, d_.heads, dim}), k = part(q_width, d_.kv_heads, dim);
  const array gate =
      mx::reshape(mx::slice(both, {0, 0, dim}, {tokens, d_.heads, 2 * dim}), {tokens, d_.heads * dim});
  if (!fault("qk norm left out")) {
    q = q_norm_(q);
    k = k_norm_(k);
  }
  const float scale = fault("score scale dropped") ? 1.0f : 1.0f / std::sqrt(static_cast<float>(dim));
  array y = attend(rope_(q, step), rope_(k, step), part(q_width + kv_width, d_.kv_heads, dim), step, slot_,
                   {.scale = scale, .softcap = 0.0f, .sinks = {}});
  if (!fault("output gate left out")) y = mx::multiply(y, kernels::activate(gate, Activation::sigmoid));
  return out_(y, residual);
}

}  // namespace mlxcel
