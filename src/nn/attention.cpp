#include "nn/attention.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

int window_of(const AttentionOptions& options) {
  if (options.window > 0 && fault("window one too wide")) return options.window + 1;
  if (options.window > 0 && fault("window one too narrow")) return options.window - 1;
  return fault("window ignored") ? 0 : options.window;
}

/// A slot of the state's, or none where rows keep nothing.
std::optional<int> slot_of(const Weights& w, const Dims& dims, const AttentionOptions& options) {
  if (w.keeps_nothing()) {
    if (options.chunk > 0 || options.block > 0)
      fail(ErrorKind::unsupported, "{}: attention in chunks or blocks is not supported for embeddings",
           w.path());
    return std::nullopt;
  }
  return w.layout().add_kv({.kv_heads = dims.kv_heads,
                            .key_dim = dims.head_dim,
                            .value_dim = dims.head_dim,
                            .window = window_of(options),
                            .chunk = fault("chunk ignored") ? 0 : options.chunk,
                            .block = fault("blocks seen one way") ? 0 : options.block});
}

/// Heads numbered a * inner + b as b * outer + a.
array regrouped(const array& x, int outer, int inner) {
  const int tokens = x.shape(0), width = x.shape(2);
  const array apart = mx::reshape(x, {tokens, outer, inner, width});
  return mx::reshape(mx::swapaxes(apart, 1, 2), {tokens, outer * inner, width});
}

}  // namespace

array warmth(const Step& step, const QueryTemperature& temperature) {
  const array at = mx::astype(mx::add(step.positions(), array(temperature.shift)), mx::float32);
  const array whole = mx::floor(mx::divide(at, array(static_cast<float>(temperature.length))));
  return mx::reshape(mx::add(mx::multiply(mx::log1p(whole), array(temperature.factor)), array(1.0f)),
                     {-1, 1});
}

array warmed(const array& q, const Step& step, const QueryTemperature& temperature) {
  return mx::multiply(q, mx::expand_dims(warmth(step, temperature), -1));
}

Attention::Attention(const Weights& w, const Dims& dims, const AttentionOptions& options)
    : plan_{.heads = dims.heads, .kv_heads = dims.kv_heads, .head_dim = dims.head_dim, .rope = options.rope},
      slot_(slot_of(w, dims, options)),
      sight_{.causal = !w.two_way(), .window = window_of(options)},
      scale_(options.scale > 0.0f ? options.scale : 1.0f / std::sqrt(static_cast<float>(dims.head_dim))),
      softcap_(options.softcap),
      clip_(fault("clip dropped") ? 0.0f : options.clip),
      blocks_(options.block > 0) {
  const int q = dims.heads * dims.head_dim, kv = dims.kv_heads * dims.head_dim;
  qkv_ = options.fused.empty()
             ? w.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, dims.hidden, options.qkv_bias)
             : w.linear(options.fused, q + 2 * kv, dims.hidden, options.qkv_bias);
  if (options.qk_norm && options.qk_norm->usual() && clip_ == 0.0f) {
    plan_.q_norm = w.rms_norm("q_norm", dims.head_dim, options.qk_norm->eps, options.qk_norm->offset);
    plan_.k_norm = w.rms_norm("k_norm", dims.head_dim, options.qk_norm->eps, options.qk_norm->offset);
  } else if (options.qk_norm) {
    q_norm_.emplace(w, "q_norm", dims.heads, dims.head_dim, *options.qk_norm);
    k_norm_.emplace(w, "k_norm", dims.kv_heads, dims.head_dim, *options.qk_norm);
    if (options.qk_norm->after_rope == fault("qk norm on the other side of rope"))
      later_rope_ = std::exchange(plan_.rope, std::nullopt);
  }
  if (options.rope && options.rope->limit() > 0)
    w.layout().add_length_limit(options.rope->limit(), options.rope->grows());
  if (options.temperature && !fault("query temperature dropped")) temperature_ = options.temperature;
  if (options.gate) {
    gate_ = w.linear(options.gate->name, options.gate->per_head ? dims.heads : q, dims.hidden, Bias::none);
    softplus_ = options.gate->softplus;
  }
  if (options.out_norm) out_norm_ = w.rms_norm(options.out_norm->name, q, options.out_norm->eps);
  tiled_ = options.tiled && !fault("kv heads not tiled");
  if (options.sinks) sinks_ = w.tensor("sinks", {dims.heads});
  out_ = w.linear(options.out, dims.hidden, q, options.out_bias);
}

Heads Attention::heads(const array& x, Step& step) const {
  array qkv = qkv_(x);
  if (clip_ > 0.0f) qkv = mx::clip(qkv, array(-clip_), array(clip_));
  auto [q, k, v] = split_heads(qkv, plan_, step);
  if (q_norm_) q = (*q_norm_)(q);
  if (k_norm_) k = (*k_norm_)(k);
  if (later_rope_) {
    q = (*later_rope_)(q, step);
    k = (*later_rope_)(k, step);
  }
  return {temperature_ ? warmed(q, step, *temperature_) : q, k, v};
}

array Attention::gated(const array& seen, const array& x) const {
  if (fault("output gate dropped")) return seen;
  const array logits = (*gate_)(x);
  // Ours: MLX rounds the tail of an array otherwise than its vectors, and a token's place must change no bit.
  const array open = kernels::activate(logits, softplus_ ? Activation::softplus : Activation::sigmoid);
  if (gate_->out == seen.shape(1)) return mx::multiply(seen, open);
  const array by_head = mx::reshape(seen, {seen.shape(0), plan_.heads, -1});
  return mx::reshape(mx::multiply(by_head, mx::expand_dims(open, -1)), seen.shape());
}

array Attention::operator()(const array& x, Step& step, const Residual& residual) const {
  auto [q, k, v] = heads(x, step);
  if (fault("query heads reversed"))
    q = mx::slice(q, {0, plan_.heads - 1, 0}, {q.shape(0), -plan_.heads - 1, plan_.head_dim}, {1, -1, 1});
  const AttendOptions options{
      .scale = fault("score scale dropped") ? 1.0f : scale_, .softcap = softcap_, .sinks = sinks_};
  if (tiled_) q = regrouped(q, plan_.heads / plan_.kv_heads, plan_.kv_heads);
  array seen = slot_ ? attend(q, k, v, step, *slot_, options) : attend_alone(q, k, v, step, options, sight_);
  if (tiled_) {
    seen = mx::reshape(seen, {seen.shape(0), plan_.heads, -1});
    seen = mx::reshape(regrouped(seen, plan_.kv_heads, plan_.heads / plan_.kv_heads), {seen.shape(0), -1});
  }
  if (out_norm_ && !fault("norm before the output left out")) seen = (*out_norm_)(seen);
  return out_(gate_ ? gated(seen, x) : seen, residual);
}

bool Attention::phases(PhaseList& list) const {
  // heads() and gated() in the program's words. A norm behind the rotation and heads in another order stay
  // outside.
  HeadPlan plan = plan_;
  if (later_rope_) plan.rope = later_rope_;
  if (!slot_ || blocks_ || tiled_ || (q_norm_ && plan_.rope)) return false;
  const auto residual = list.residual();
  auto open = PhaseList::kNone;
  if (gate_) {
    open = list.aside(*gate_, softplus_ ? Activation::softplus : Activation::sigmoid);
    if (open == PhaseList::kNone) return false;
  }
  if (!list.linear(qkv_)) return false;
  const int q = plan.heads * plan.head_dim, kv = plan.kv_heads * plan.head_dim;
  if (clip_ > 0.0f && !list.columns(0, 1, q + 2 * kv, clip_, nullptr, std::nullopt)) return false;
  if (q_norm_ && !(q_norm_->phases(list, 0, plan.heads, plan.head_dim) &&
                   k_norm_->phases(list, q, plan.kv_heads, plan.head_dim)))
    return false;
  PhaseList::Attended attended{*slot_, scale_, softcap_, sinks_, PhaseList::kNone};
  if (temperature_)
    attended.factors = list.factors({temperature_->factor, static_cast<float>(temperature_->length),
                                     static_cast<float>(temperature_->shift)},
                                    [&] { return warmth(list.step(), *temperature_); });
  if (!list.attend(plan, attended)) return false;
  if (out_norm_ && !list.norm(*out_norm_)) return false;
  if (gate_) list.multiply(open);
  return list.linear(out_, residual);
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
  const array seen = attend_alone(q, k, v, step, {.scale = scale, .softcap = 0.0f, .sinks = {}});
  return out_(seen, residual);
}

}  // namespace mlxcel
