#include "nn/delta.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/isa/recurrent.h"
#include "kernels/isa/rowwise.h"
#include "kernels/recurrent.h"
#include "nn/dims.h"
#include "nn/fault.h"
#include "nn/recurrent_phases.h"

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

/// The streams of a fused projection, each in one piece: q, k, v; the gate; beta and the decay's logits.
void unfuse(const GatedDeltaOptions& o, const float* from, float* qkv, float* gate, float* pairs) {
  const int served = o.value_heads / o.key_heads, values = served * o.value_dim;
  const int run = 2 * o.key_dim + 2 * values, keys = key_width(o);
  const float* const last = from + channels_of(o) + value_width(o);
  for (int h = 0; h < o.key_heads; ++h, from += run) {
    std::copy_n(from, o.key_dim, qkv + h * o.key_dim);
    std::copy_n(from + o.key_dim, o.key_dim, qkv + keys + h * o.key_dim);
    std::copy_n(from + 2 * o.key_dim, values, qkv + 2 * keys + h * values);
    std::copy_n(from + 2 * o.key_dim + values, values, gate + h * values);
    for (int i = 0; i < served; ++i) {
      pairs[h * served + i] = last[h * 2 * served + i];
      pairs[o.value_heads + h * served + i] = last[h * 2 * served + served + i];
    }
  }
}

/// l2_norm() of queries and keys [2, heads, dim], in its words; scaled by 1 / sqrt(dim) and by 1.
std::vector<float> normed_heads(const kernels::RowwiseBodies& body, const float* x, int heads, int dim) {
  const auto width = static_cast<float>(dim);
  const size_t keys = static_cast<size_t>(heads) * static_cast<size_t>(dim);
  std::vector<float> out(2 * keys);
  body.rms_norm(x, nullptr, 1e-6f / width, 0.0f, 2 * heads, dim, out.data());
  const float by_q = 1.0f / std::sqrt(static_cast<float>(dim)) / std::sqrt(width),
              by_k = 1.0f / std::sqrt(width);
  for (size_t i = 0; i < keys; ++i) out[i] *= by_q;
  for (size_t i = keys; i < 2 * keys; ++i) out[i] *= by_k;
  return out;
}

void activate_all(const kernels::RowwiseBodies& body, std::vector<float>& x, Activation activation) {
  body.activate(x.data(), static_cast<int>(activation), x.size(), x.data());
}

/// The scan over decay, read, write, query [tokens, heads, key_dim] and value [tokens, heads, value_dim].
PhaseList::Slot delta_phase(PhaseList& list, std::vector<PhaseList::Slot> inputs, int heads, int key_dim,
                            int value_dim, int slot) {
  const int wide = heads * key_dim, values = heads * value_dim;
  return scan_phase(list, std::move(inputs), values, heads, slot,
                    [=, body = kernels::recurrent_bodies().delta](const kernels::WorkView& v,
                                                                  const ScanTokens& at, int head) {
                      const ptrdiff_t first = at.first * wide,
                                      held = at.row * static_cast<ptrdiff_t>(values) * key_dim;
                      body({.decay = v.read[0] + first,
                            .read = v.read[1] + first,
                            .write = v.read[2] + first,
                            .key = v.read[2] + first,
                            .query = v.read[3] + first,
                            .value = v.read[4] + at.first * values,
                            .before = v.from[0] + held,
                            .out = v.made[0] + at.first * values,
                            .after = v.given[0] + held,
                            .count = at.count,
                            .heads = heads,
                            .key_dim = key_dim,
                            .value_dim = value_dim},
                           head);
                    });
}

/// One token's part of delta_rule(): decay, read, write and query [value_heads, key_dim], value.
struct DeltaToken {
  GatedDeltaOptions o;
  array dt_bias, rate;
  const kernels::RowwiseBodies& body = kernels::rowwise_bodies();

  void operator()(const kernels::WorkView& v, ptrdiff_t t) const {
    const int keys = key_width(o), heads = o.value_heads, dim = o.key_dim, served = heads / o.key_heads;
    const ptrdiff_t wide = static_cast<ptrdiff_t>(heads) * dim;
    const float* const mixed = v.read[0] + t * v.stride[0];
    const float* const pairs = v.read[1] + t * v.stride[1];
    const std::vector<float> normed = normed_heads(body, mixed, o.key_heads, dim);
    std::vector<float> beta(pairs, pairs + heads), fade(pairs + heads, pairs + 2 * heads);
    activate_all(body, beta, Activation::sigmoid);
    for (int h = 0; h < heads; ++h) fade[static_cast<size_t>(h)] += dt_bias.data<float>()[h];
    activate_all(body, fade, Activation::softplus);
    for (int h = 0; h < heads; ++h) fade[static_cast<size_t>(h)] *= rate.data<float>()[h];
    activate_all(body, fade, Activation::exp);
    for (int h = 0; h < heads; ++h) {
      const int from = (o.tiled ? h % o.key_heads : h / served) * dim;
      const ptrdiff_t at = t * wide + h * static_cast<ptrdiff_t>(dim);
      const float decay = fade[static_cast<size_t>(h)], b = beta[static_cast<size_t>(h)];
      for (int i = 0; i < dim; ++i) {
        const float k = normed[static_cast<size_t>(keys + from + i)];
        v.made[0][at + i] = decay;
        v.made[1][at + i] = -(decay * k);
        v.made[2][at + i] = k * b;
        v.made[3][at + i] = normed[static_cast<size_t>(from + i)];
      }
    }
    std::copy_n(mixed + 2 * keys, value_width(o), v.made[4] + t * value_width(o));
  }
};

}  // namespace

bool GatedDeltaMixer::phases(PhaseList& list) const {
  if (!are_constants({dt_bias_, rate_})) return false;
  const auto residual = list.residual();
  const int channels = channels_of(o_), values = value_width(o_), heads = o_.value_heads;
  if (!list.linear(in_)) return false;
  const auto all = list.value();
  auto qkv = PhaseList::kNone, gate = PhaseList::kNone, pairs = PhaseList::kNone;
  if (o_.fused) {
    const auto apart = token_phase(
        list, {all}, {channels, values, 2 * heads}, [o = o_](const kernels::WorkView& v, ptrdiff_t t) {
          unfuse(o, v.read[0] + t * v.stride[0], v.made[0] + t * channels_of(o),
                 v.made[1] + t * value_width(o), v.made[2] + t * 2 * o.value_heads);
        });
    qkv = apart[0], gate = apart[1], pairs = apart[2];
  } else {
    qkv = list.part(all, 0, channels);
    gate = list.part(all, channels, values);
    pairs = list.part(all, channels + values, 2 * heads);
  }
  const auto mixed = conv_phase(list, qkv, channels, conv_weight_, std::nullopt, conv_slot_, o_.activation);
  if (mixed == PhaseList::kNone) return false;
  const int wide = heads * o_.key_dim;
  const auto inputs =
      token_phase(list, {mixed, pairs}, {wide, wide, wide, wide, values}, DeltaToken{o_, dt_bias_, rate_});
  const auto seen = delta_phase(list, inputs, heads, o_.key_dim, o_.value_dim, delta_slot_);
  list.set_value(seen);
  const Norm norm(RmsNorm{.weight = norm_weight_, .eps = o_.eps});
  if (!list.columns(0, heads, o_.value_dim, 0.0f, &norm, std::nullopt)) return false;
  list.multiply(gate, Activation::silu);
  return list.linear(out_, residual);
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

namespace {

/// The same for a decay of each channel.
struct KdaToken {
  KdaOptions o;
  array dt_bias, rate;
  const kernels::RowwiseBodies& body = kernels::rowwise_bodies();

  void operator()(const kernels::WorkView& v, ptrdiff_t t) const {
    const int heads = o.heads, dim = o.head_dim, width = heads * dim;
    const float* const mixed = v.read[0] + t * v.stride[0];
    const float* const logits = v.read[1] + t * v.stride[1];
    const float* const forget = v.read[2] + t * v.stride[2];
    const std::vector<float> normed = normed_heads(body, mixed, heads, dim);
    std::vector<float> beta(logits, logits + heads), fade(forget, forget + width);
    activate_all(body, beta, Activation::sigmoid);
    for (int i = 0; i < width; ++i) fade[static_cast<size_t>(i)] += dt_bias.data<float>()[i];
    const auto by_rate = [&] {
      for (int i = 0; i < width; ++i) fade[static_cast<size_t>(i)] *= rate.data<float>()[i / dim];
    };
    if (o.lowest != 0.0f) {
      by_rate();
      for (float& f : fade) f = -f;
      activate_all(body, fade, Activation::sigmoid);
      for (float& f : fade) f *= o.lowest;
    } else {
      activate_all(body, fade, Activation::softplus);
      by_rate();
    }
    activate_all(body, fade, Activation::exp);
    for (int i = 0; i < width; ++i) {
      const ptrdiff_t at = t * width + i;
      const float decay = fade[static_cast<size_t>(i)], k = normed[static_cast<size_t>(width + i)];
      v.made[0][at] = decay;
      v.made[1][at] = -(decay * k);
      v.made[2][at] = k * beta[static_cast<size_t>(i / dim)];
      v.made[3][at] = normed[static_cast<size_t>(i)];
    }
    std::copy_n(mixed + 2 * width, width, v.made[4] + t * width);
  }
};

}  // namespace

bool KdaMixer::phases(PhaseList& list) const {
  if (!are_constants({dt_bias_, rate_})) return false;
  const auto residual = list.residual();
  const int width = o_.heads * o_.head_dim;
  if (!list.linear(in_)) return false;
  const auto all = list.value();
  const auto mixed = conv_phase(list, list.part(all, 0, 3 * width), 3 * width, conv_weight_, std::nullopt,
                                conv_slot_, o_.activation);
  if (mixed == PhaseList::kNone) return false;
  int at = 3 * width;
  const auto beta = list.part(all, at, o_.heads);
  at += o_.heads;
  list.set_value(list.part(all, at, o_.head_dim));
  if (!list.linear(forget_)) return false;
  const auto forget = list.value();
  at += o_.head_dim;
  auto gate = list.part(all, at, o_.whole_gate ? width : o_.head_dim);
  if (!o_.whole_gate) {
    list.set_value(gate);
    if (!list.linear(gate_)) return false;
    gate = list.value();
  }
  const auto inputs = token_phase(list, {mixed, beta, forget}, {width, width, width, width, width},
                                  KdaToken{o_, dt_bias_, rate_});
  list.set_value(delta_phase(list, inputs, o_.heads, o_.head_dim, o_.head_dim, delta_slot_));
  const Norm norm(RmsNorm{.weight = norm_weight_, .eps = o_.eps});
  if (!list.columns(0, o_.heads, o_.head_dim, 0.0f, &norm, std::nullopt)) return false;
  list.multiply(gate, Activation::sigmoid);
  return list.linear(out_, residual);
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
