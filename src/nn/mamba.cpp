#include "nn/mamba.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/isa/recurrent.h"
#include "kernels/recurrent.h"
#include "nn/delta.h"
#include "nn/dims.h"
#include "nn/fault.h"
#include "nn/recurrent_phases.h"

namespace mlxcel {

namespace {

array columns(const array& x, int from, int to) { return mx::slice(x, {0, from}, {x.shape(0), to}); }

std::optional<RmsNorm> norm_of(const Weights& w, const char* name, int width, const MambaOptions& o) {
  if (o.norms == MambaOptions::Norms::none) return std::nullopt;
  if (o.norms == MambaOptions::Norms::weighted) return w.rms_norm(name, width, o.eps);
  return RmsNorm{.weight = std::nullopt, .eps = o.eps};
}

}  // namespace

int MambaOptions::rank_from(const Config& config, const char* key, int hidden) {
  if (config.has(key) && !config.is_string(key)) return config.integer(key, 1, kMaxWidth);
  const auto word = config.get<std::string>(key, "auto");
  if (word != "auto")
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a number or \"auto\", found \"{}\"", config.where(),
         key, word);
  return (hidden + 15) / 16;
}

MambaMixer::MambaMixer(const Weights& w, const MambaOptions& options)
    : o_(options),
      in_(w.linear("in_proj", 2 * o_.inner, o_.hidden, o_.bias)),
      choice_(w.linear("x_proj", o_.rank + 2 * o_.state, o_.inner, Bias::none)),
      dt_(w.linear("dt_proj", o_.inner, o_.rank, Bias::required)),
      out_(w.linear("out_proj", o_.hidden, o_.inner, o_.bias)),
      conv_weight_(w.tensor("conv1d.weight", {o_.inner, o_.taps})),
      conv_bias_(w.bias("conv1d.bias", o_.inner, o_.conv_bias)),
      rate_(negative_exp(w.tensor("A_log", {o_.inner, o_.state}))),
      d_(w.tensor("D", {o_.inner})),
      dt_norm_(norm_of(w, "dt_layernorm", o_.rank, o_)),
      b_norm_(norm_of(w, "b_layernorm", o_.state, o_)),
      c_norm_(norm_of(w, "c_layernorm", o_.state, o_)),
      conv_slot_(w.layout().add_recurrent({.name = "conv", .shape = {o_.taps - 1, o_.inner}})),
      ssm_slot_(w.layout().add_recurrent({.name = "ssm", .shape = {o_.inner, o_.state}})) {}

array MambaMixer::operator()(const array& x, Step& step, const Residual& residual) const {
  const array both = in_(x);
  const auto [mixed, conv_state] =
      kernels::causal_conv(columns(both, 0, o_.inner), conv_weight_, conv_bias_, step.recurrent(conv_slot_),
                           step.offsets(), o_.activation);
  step.set_recurrent(conv_slot_, conv_state);

  const array chosen = choice_(mixed);
  const auto part = [&](int from, int width, const std::optional<RmsNorm>& norm) {
    const array y = columns(chosen, from, from + width);
    return norm && !fault("norms of the scan left out") ? (*norm)(y) : y;
  };
  const array dt = kernels::activate(dt_(part(0, o_.rank, dt_norm_)), Activation::softplus);
  const auto [scanned, ssm_state] = kernels::selective_scan(
      mixed, dt, rate_, part(o_.rank, o_.state, b_norm_), part(o_.rank + o_.state, o_.state, c_norm_), d_,
      step.recurrent(ssm_slot_), step.offsets());
  step.set_recurrent(ssm_slot_, ssm_state);

  const array gate = kernels::activate(columns(both, o_.inner, 2 * o_.inner), Activation::silu);
  return out_(fault("gate of the scan left out") ? scanned : mx::multiply(scanned, gate), residual);
}

bool MambaMixer::phases(PhaseList& list) const {
  if (!are_constants({rate_, d_})) return false;
  const auto residual = list.residual();
  const int inner = o_.inner, states = o_.state;
  if (!list.linear(in_)) return false;
  const auto both = list.value();
  const auto mixed =
      conv_phase(list, list.part(both, 0, inner), inner, conv_weight_, conv_bias_, conv_slot_, o_.activation);
  if (mixed == PhaseList::kNone) return false;
  list.set_value(mixed);
  if (!list.linear(choice_)) return false;
  const auto chosen = list.value();
  const auto normed = [&](int from, int width, const std::optional<RmsNorm>& norm) {
    if (!norm) return true;
    const Norm own(*norm);
    return list.columns(from, 1, width, 0.0f, &own, std::nullopt);
  };
  if (!normed(0, o_.rank, dt_norm_) || !normed(o_.rank, states, b_norm_) ||
      !normed(o_.rank + states, states, c_norm_))
    return false;
  const auto ends = token_phase(list, {list.part(chosen, o_.rank, 2 * states)}, {states, states},
                                [states](const kernels::WorkView& v, ptrdiff_t t) {
                                  const float* const from = v.read[0] + t * v.stride[0];
                                  std::copy_n(from, states, v.made[0] + t * states);
                                  std::copy_n(from + states, states, v.made[1] + t * states);
                                });
  list.set_value(list.part(chosen, 0, o_.rank));
  if (!list.linear(dt_, PhaseList::kNone, Activation::softplus)) return false;
  const int blocks = (inner + kernels::kConvBlock - 1) / kernels::kConvBlock;
  const auto scanned =
      scan_phase(list, {mixed, list.value(), ends[0], ends[1]}, inner, blocks, ssm_slot_,
                 [inner, states, a = rate_, d = d_, body = kernels::recurrent_bodies().selective](
                     const kernels::WorkView& v, const ScanTokens& at, int block) {
                   const ptrdiff_t held = at.row * static_cast<ptrdiff_t>(inner) * states;
                   body({.x = v.read[0] + at.first * inner,
                         .dt = v.read[1] + at.first * inner,
                         .a = a.data<float>(),
                         .b = v.read[2] + at.first * states,
                         .c = v.read[3] + at.first * states,
                         .d = d.data<float>(),
                         .before = v.from[0] + held,
                         .out = v.made[0] + at.first * inner,
                         .after = v.given[0] + held,
                         .count = at.count,
                         .channels = inner,
                         .state_dim = states},
                        block);
                 });
  list.set_value(scanned);
  list.multiply(list.part(both, inner, inner), Activation::silu);
  return list.linear(out_, residual);
}

}  // namespace mlxcel
