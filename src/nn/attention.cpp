#include "nn/attention.h"

#include <cmath>

#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

/// Heads [from, to) of x [tokens, heads, head_dim].
array heads_of(const array& x, int from, int to) {
  return mx::slice(x, {0, from, 0}, {x.shape(0), to, x.shape(2)});
}

int window_of(const AttentionOptions& options) {
  if (options.window > 0 && fault("window one too wide")) return options.window + 1;
  if (options.window > 0 && fault("window one too narrow")) return options.window - 1;
  return fault("window ignored") ? 0 : options.window;
}

}  // namespace

Attention::Attention(const Weights& w, const Dims& dims, const AttentionOptions& options)
    : rope_(options.rope),
      heads_(dims.heads),
      kv_heads_(dims.kv_heads),
      head_dim_(dims.head_dim),
      slot_(w.layout().add_kv({.kv_heads = dims.kv_heads,
                               .key_dim = dims.head_dim,
                               .value_dim = dims.head_dim,
                               .window = window_of(options)})),
      scale_(options.scale > 0.0f ? options.scale : 1.0f / std::sqrt(static_cast<float>(dims.head_dim))),
      softcap_(options.softcap) {
  const int q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  qkv_ = options.fused.empty()
             ? w.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, dims.hidden, options.qkv_bias)
             : w.linear(options.fused, q + 2 * kv, dims.hidden, options.qkv_bias);
  if (options.qk_norm) {
    q_norm_ = w.rms_norm("q_norm", head_dim_, options.qk_norm->eps, options.qk_norm->offset);
    k_norm_ = w.rms_norm("k_norm", head_dim_, options.qk_norm->eps, options.qk_norm->offset);
  }
  if (options.sinks) sinks_ = w.tensor("sinks", {heads_});
  out_ = w.linear(options.out, dims.hidden, q, options.out_bias);
}

array Attention::operator()(const array& x, Step& step, const Residual& residual) const {
  const array heads = mx::reshape(qkv_(x), {x.shape(0), heads_ + 2 * kv_heads_, head_dim_});
  array q = heads_of(heads, 0, heads_);
  array k = heads_of(heads, heads_, heads_ + kv_heads_);
  const array v = heads_of(heads, heads_ + kv_heads_, heads_ + 2 * kv_heads_);
  if (q_norm_ && !fault("qk norm left out")) {
    q = (*q_norm_)(q);
    k = (*k_norm_)(k);
    if (rope_) {
      q = (*rope_)(q, step);
      k = (*rope_)(k, step);
    }
  } else if (rope_) {
    const array turned = (*rope_)(heads_of(heads, 0, heads_ + kv_heads_), step);
    q = heads_of(turned, 0, heads_);
    k = heads_of(turned, heads_, heads_ + kv_heads_);
  }
  if (fault("query heads reversed")) q = mx::slice(q, {0, heads_ - 1, 0}, {q.shape(0), -heads_ - 1, head_dim_}, {1, -1, 1});
  const AttendOptions options{.scale = fault("score scale dropped") ? 1.0f : scale_, .softcap = softcap_, .sinks = sinks_};
  return out_(attend(q, k, v, step, slot_, options), residual);
}

EncoderAttention::EncoderAttention(const Weights& w, const Dims& dims, Bias bias, const EncoderAttentionNames& names)
    : qkv_(w.fused({names.query, names.key, names.value},
                   {dims.heads * dims.head_dim, dims.heads * dims.head_dim, dims.heads * dims.head_dim}, dims.hidden, bias)),
      out_(w.linear(names.out, dims.hidden, dims.heads * dims.head_dim, bias)),
      heads_(dims.heads),
      head_dim_(dims.head_dim) {}

array EncoderAttention::operator()(const array& x, const Step& step, const Residual& residual) const {
  const array heads = mx::reshape(qkv_(x), {x.shape(0), 3 * heads_, head_dim_});
  const float scale = fault("score scale dropped") ? 1.0f : 1.0f / std::sqrt(static_cast<float>(head_dim_));
  const array seen = attend_two_way(heads_of(heads, 0, heads_), heads_of(heads, heads_, 2 * heads_),
                                    heads_of(heads, 2 * heads_, 3 * heads_), step, {.scale = scale, .softcap = 0.0f, .sinks = {}});
  return out_(seen, residual);
}

}  // namespace mlxcel
