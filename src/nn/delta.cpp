#include "nn/delta.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/recurrent.h"
#include "nn/dims.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

int key_width(const GatedDeltaOptions& o) { return o.key_heads * o.key_dim; }
int value_width(const GatedDeltaOptions& o) { return o.value_heads * o.value_dim; }
int channels_of(const GatedDeltaOptions& o) { return 2 * key_width(o) + value_width(o); }

array columns(const array& x, int from, int to) {
  Shape start(x.ndim(), 0), stop = x.shape();
  start.back() = from;
  stop.back() = to;
  return mx::slice(x, start, stop);
}

Linear projection(const Weights& w, const GatedDeltaOptions& o) {
  if (o.fused)
    return w.fused({"in_proj_qkvz", "in_proj_ba"}, {channels_of(o) + value_width(o), 2 * o.value_heads},
                   o.hidden, Bias::none);
  return w.fused({"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"},
                 {channels_of(o), value_width(o), o.value_heads, o.value_heads}, o.hidden, Bias::none);
}

}  // namespace

GatedDeltaOptions GatedDeltaOptions::from(const Config& c, int hidden, float eps) {
  GatedDeltaOptions o{.hidden = hidden, .eps = eps};
  o.key_heads = c.integer("linear_num_key_heads", 1, 4096, 16);
  o.value_heads = c.integer("linear_num_value_heads", 1, 4096, 32);
  o.key_dim = c.integer("linear_key_head_dim", 1, 8192, 128);
  o.value_dim = c.integer("linear_value_head_dim", 1, 8192, 128);
  o.taps = c.integer("linear_conv_kernel_dim", 2, 16, 4);
  o.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  o.tiled = c.get("linear_value_heads_tiled", false);
  if (o.value_heads % o.key_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: linear_num_value_heads {}: expected a multiple of linear_num_key_heads {}", c.where(),
         o.value_heads, o.key_heads);
  return o;
}

array l2_norm(const array& x, float eps, float scale) {
  const auto width = static_cast<float>(x.shape(-1));
  return mx::multiply(kernels::rms_norm(x, std::nullopt, eps / width), array(scale / std::sqrt(width)));
}

array negative_exp(const array& log) {
  if (!log.is_available()) return log;
  std::vector<float> values(log.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = -std::exp(log.data<float>()[i]);
  return array(values.data(), log.shape(), mx::float32);
}

array delta_rule(const array& q, const array& k, const array& v, const array& beta, const array& log_decay,
                 Step& step, int slot) {
  array decay = kernels::activate(log_decay, Activation::exp);
  if (fault("memory never fades")) decay = mx::ones_like(decay);
  if (decay.ndim() == 2) decay = mx::broadcast_to(mx::expand_dims(decay, -1), k.shape());
  const array write = fault("delta rule without beta") ? k : mx::multiply(k, mx::expand_dims(beta, -1));
  const array recalled = mx::negative(mx::multiply(decay, k));
  const array read = fault("delta rule without correction") ? mx::zeros_like(recalled) : recalled;
  const auto [out, state] = kernels::delta_scan(
      {.decay = decay, .read = read, .write = write, .key = write, .query = q, .value = v},
      step.recurrent(slot), step.offsets());
  step.set_recurrent(slot, state);
  return out;
}

GatedDeltaMixer::GatedDeltaMixer(const Weights& w, const GatedDeltaOptions& options)
    : o_(options),
      in_(projection(w, o_)),
      out_(w.linear("out_proj", o_.hidden, value_width(o_), Bias::none)),
      conv_weight_(w.tensor("conv1d.weight", {channels_of(o_), o_.taps})),
      dt_bias_(w.tensor("dt_bias", {o_.value_heads})),
      rate_(negative_exp(w.tensor("A_log", {o_.value_heads}))),
      norm_weight_(w.tensor("norm.weight", {o_.value_dim})),
      conv_slot_(w.layout().add_recurrent({.name = "conv", .shape = {o_.taps - 1, channels_of(o_)}})),
      delta_slot_(
          w.layout().add_recurrent({.name = "delta", .shape = {o_.value_heads, o_.value_dim, o_.key_dim}})) {}

GatedDeltaMixer::Streams GatedDeltaMixer::project(const array& x) const {
  const array all = in_(x);
  const int tokens = x.shape(0), channels = channels_of(o_), values = value_width(o_);
  if (!o_.fused) {
    const int b = channels + values;
    return {columns(all, 0, channels), columns(all, channels, b), columns(all, b, b + o_.value_heads),
            columns(all, b + o_.value_heads, b + 2 * o_.value_heads)};
  }
  // Each key head's run: its query, its key, the values of the value heads it serves, their gates.
  const int served = o_.value_heads / o_.key_heads, run = 2 * o_.key_dim + 2 * served * o_.value_dim;
  const array runs = mx::reshape(columns(all, 0, channels + values), {tokens, o_.key_heads, run});
  const auto part = [&](int from, int width) {
    return mx::reshape(columns(runs, from, from + width), {tokens, o_.key_heads * width});
  };
  const array pairs =
      mx::reshape(columns(all, channels + values, all.shape(1)), {tokens, o_.key_heads, 2 * served});
  const auto half = [&](int from) {
    return mx::reshape(columns(pairs, from, from + served), {tokens, o_.value_heads});
  };
  const array qkv = mx::concatenate(
      {part(0, o_.key_dim), part(o_.key_dim, o_.key_dim), part(2 * o_.key_dim, served * o_.value_dim)}, 1);
  return {qkv, part(2 * o_.key_dim + served * o_.value_dim, served * o_.value_dim), half(0), half(served)};
}

array GatedDeltaMixer::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0), keys = key_width(o_), served = o_.value_heads / o_.key_heads;
  const Streams in = project(x);
  const auto [mixed, conv_state] = kernels::causal_conv(
      in.qkv, conv_weight_, std::nullopt, step.recurrent(conv_slot_), step.offsets(), o_.activation);
  step.set_recurrent(conv_slot_, conv_state);

  const auto heads = [&](int from, float scale) {
    const array h = mx::reshape(columns(mixed, from, from + keys), {tokens, o_.key_heads, o_.key_dim});
    const array normed = fault("qk norm left out") ? h : l2_norm(h, 1e-6f, scale);
    if (served == 1) return normed;
    return o_.tiled ? mx::tile(normed, {1, served, 1}) : mx::repeat(normed, served, 1);
  };
  const array q = heads(0, 1.0f / std::sqrt(static_cast<float>(o_.key_dim))), k = heads(keys, 1.0f);
  const array v =
      mx::reshape(columns(mixed, 2 * keys, channels_of(o_)), {tokens, o_.value_heads, o_.value_dim});
  const array beta = kernels::activate(in.beta, Activation::sigmoid);
  const array decay =
      mx::multiply(kernels::activate(mx::add(in.decay, dt_bias_), Activation::softplus), rate_);

  // Normed first, then gated.
  const array y =
      kernels::rms_norm(delta_rule(q, k, v, beta, decay, step, delta_slot_), norm_weight_, o_.eps);
  const array gate = kernels::activate(in.gate, Activation::silu);
  return out_(mx::multiply(mx::reshape(y, {tokens, value_width(o_)}), gate), residual);
}

namespace {

/// The three convolutions one after another, [3 * width, taps], on the host.
array joined_convolutions(const Weights& w, int width, int taps) {
  std::vector<float> values;
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    const array part = w.tensor(name, {width, taps});
    if (!part.is_available()) continue;
    values.insert(values.end(), part.data<float>(), part.data<float>() + part.size());
  }
  const Shape shape{3 * width, taps};
  return values.empty() ? mx::zeros(shape) : array(values.data(), shape, mx::float32);
}

}  // namespace

KdaMixer::KdaMixer(const Weights& w, const KdaOptions& options)
    : o_(options),
      in_(w.fused({"q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", o_.whole_gate ? "g_proj" : "g_a_proj"},
                  {o_.heads * o_.head_dim, o_.heads * o_.head_dim, o_.heads * o_.head_dim, o_.heads,
                   o_.head_dim, o_.whole_gate ? o_.heads * o_.head_dim : o_.head_dim},
                  o_.hidden, Bias::none)),
      forget_(w.linear("f_b_proj", o_.heads * o_.head_dim, o_.head_dim, Bias::none)),
      out_(w.linear("o_proj", o_.hidden, o_.heads * o_.head_dim, Bias::none)),
      conv_weight_(joined_convolutions(w, o_.heads * o_.head_dim, o_.taps)),
      dt_bias_(w.tensor("dt_bias", {o_.heads * o_.head_dim})),
      rate_(negative_exp(w.tensor("A_log", {o_.heads, 1}))),
      norm_weight_(w.tensor("o_norm.weight", {o_.head_dim})),
      conv_slot_(
          w.layout().add_recurrent({.name = "conv", .shape = {o_.taps - 1, 3 * o_.heads * o_.head_dim}})),
      delta_slot_(
          w.layout().add_recurrent({.name = "delta", .shape = {o_.heads, o_.head_dim, o_.head_dim}})) {
  if (!o_.whole_gate) gate_ = w.linear("g_b_proj", o_.heads * o_.head_dim, o_.head_dim, Bias::none);
}

array KdaMixer::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0), width = o_.heads * o_.head_dim;
  const array all = in_(x);
  const auto by_head = [&](const array& y) { return mx::reshape(y, {tokens, o_.heads, o_.head_dim}); };
  const auto [mixed, conv_state] =
      kernels::causal_conv(columns(all, 0, 3 * width), conv_weight_, std::nullopt, step.recurrent(conv_slot_),
                           step.offsets(), o_.activation);
  step.set_recurrent(conv_slot_, conv_state);
  const auto normed = [&](int i, float scale) {
    const array h = by_head(columns(mixed, i * width, (i + 1) * width));
    return fault("qk norm left out") ? h : l2_norm(h, 1e-6f, scale);
  };
  const array q = normed(0, 1.0f / std::sqrt(static_cast<float>(o_.head_dim))), k = normed(1, 1.0f);
  const array v = by_head(columns(mixed, 2 * width, 3 * width));
  int at = 3 * width;
  const array beta = kernels::activate(columns(all, at, at + o_.heads), Activation::sigmoid);
  at += o_.heads;
  const array forget = mx::add(forget_(columns(all, at, at + o_.head_dim)), dt_bias_);
  // rate_ is -e^A.
  const array decay = o_.lowest != 0.0f
                          ? mx::multiply(kernels::activate(mx::negative(mx::multiply(by_head(forget), rate_)),
                                                           Activation::sigmoid),
                                         array(fault("memory never fades") ? 0.0f : o_.lowest))
                          : mx::multiply(by_head(kernels::activate(forget, Activation::softplus)), rate_);
  at += o_.head_dim;
  const array logits = columns(all, at, all.shape(1));
  const array gate = kernels::activate(o_.whole_gate ? logits : gate_(logits), Activation::sigmoid);
  const array y =
      kernels::rms_norm(delta_rule(q, k, v, beta, decay, step, delta_slot_), norm_weight_, o_.eps);
  const array flat = mx::reshape(y, {tokens, width});
  return out_(fault("output gate left out") ? flat : mx::multiply(flat, gate), residual);
}

std::vector<Rule> centred_norm_rules(const Source& source) {
  for (const auto& name : source.names()) {
    if (!name.ends_with("linear_attn.conv1d.weight")) continue;
    const Shape shape = source.find(name).value().shape;
    if (shape.size() != 3 || shape[2] == 1) return {};
    std::vector<Rule> rules;
    for (const char* norm : {"*.input_layernorm.weight", "*.post_attention_layernorm.weight",
                             "*.q_norm.weight", "*.k_norm.weight", "model.norm.weight"})
      rules.push_back(add_constant(norm, 1.0f));
    return rules;
  }
  return {};
}

}  // namespace mlxcel
