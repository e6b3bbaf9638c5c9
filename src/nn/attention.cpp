#include "nn/attention.h"

#include <cmath>

#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

int window_of(const AttentionOptions& options) {
  if (options.window > 0 && fault("window one too wide")) return options.window + 1;
  if (options.window > 0 && fault("window one too narrow")) return options.window - 1;
  return fault("window ignored") ? 0 : options.window;
}

}  // namespace

Attention::Attention(const Weights& w, const Dims& dims, const AttentionOptions& options)
    : plan_{.heads = dims.heads, .kv_heads = dims.kv_heads, .head_dim = dims.head_dim, .rope = options.rope},
      slot_(w.layout().add_kv({.kv_heads = dims.kv_heads,
                               .key_dim = dims.head_dim,
                               .value_dim = dims.head_dim,
                               .window = window_of(options)})),
      scale_(options.scale > 0.0f ? options.scale : 1.0f / std::sqrt(static_cast<float>(dims.head_dim))),
      softcap_(options.softcap) {
  const int q = dims.heads * dims.head_dim, kv = dims.kv_heads * dims.head_dim;
  qkv_ = options.fused.empty()
             ? w.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, dims.hidden, options.qkv_bias)
             : w.linear(options.fused, q + 2 * kv, dims.hidden, options.qkv_bias);
  if (options.qk_norm) {
    plan_.q_norm = w.rms_norm("q_norm", dims.head_dim, options.qk_norm->eps, options.qk_norm->offset);
    plan_.k_norm = w.rms_norm("k_norm", dims.head_dim, options.qk_norm->eps, options.qk_norm->offset);
  }
  if (options.sinks) sinks_ = w.tensor("sinks", {dims.heads});
  out_ = w.linear(options.out, dims.hidden, q, options.out_bias);
}

array Attention::operator()(const array& x, Step& step, const Residual& residual) const {
  auto [q, k, v] = split_heads(qkv_(x), plan_, step);
  if (fault("query heads reversed"))
    q = mx::slice(q, {0, plan_.heads - 1, 0}, {q.shape(0), -plan_.heads - 1, plan_.head_dim}, {1, -1, 1});
  const AttendOptions options{
      .scale = fault("score scale dropped") ? 1.0f : scale_, .softcap = softcap_, .sinks = sinks_};
  return out_(attend(q, k, v, step, slot_, options), residual);
}

bool Attention::phases(PhaseList& list) const {
  const auto residual = list.residual();
  return list.linear(qkv_) && list.attend(plan_, {slot_, scale_, softcap_, sinks_}) && list.linear(out_, residual);
}

EncoderAttention::EncoderAttention(const Weights& w, const Dims& dims, Bias bias,
                                   const EncoderAttentionNames& names)
    : qkv_(w.fused({names.query, names.key, names.value},
                   {dims.heads * dims.head_dim, dims.heads * dims.head_dim, dims.heads * dims.head_dim},
                   dims.hidden, bias)),
      out_(w.linear(names.out, dims.hidden, dims.heads * dims.head_dim, bias)),
      plan_{.heads = dims.heads, .kv_heads = dims.heads, .head_dim = dims.head_dim} {}

array EncoderAttention::operator()(const array& x, const Step& step, const Residual& residual) const {
  const auto [q, k, v] = split_heads(qkv_(x), plan_, step);
  const float scale =
      fault("score scale dropped") ? 1.0f : 1.0f / std::sqrt(static_cast<float>(plan_.head_dim));
  const array seen = attend_two_way(q, k, v, step, {.scale = scale, .softcap = 0.0f, .sinks = {}});
  return out_(seen, residual);
}

}  // namespace mlxcel
