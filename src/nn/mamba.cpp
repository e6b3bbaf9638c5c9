#include "nn/mamba.h"

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/recurrent.h"
#include "nn/delta.h"
#include "nn/dims.h"
#include "nn/fault.h"

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

}  // namespace mlxcel
