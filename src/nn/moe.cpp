#include "nn/moe.h"

#include "base/error.h"
#include "kernels/elementwise.h"
#include "nn/dims.h"
#include "nn/expert_phases.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

array scaled(const array& x, float factor) { return factor == 1.0f ? x : mx::multiply(x, array(factor)); }

}  // namespace

MoeOptions MoeOptions::grouped(const Config& c, int default_groups, int default_kept) {
  MoeOptions moe;
  moe.experts = c.integer(c.has("n_routed_experts") ? "n_routed_experts" : "num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  moe.groups = c.integer("n_group", 1, moe.experts, default_groups);
  moe.kept_groups = c.integer("topk_group", 1, moe.groups, default_kept);
  moe.renormalize = c.get("norm_topk_prob", true);
  moe.renorm_eps = 1e-20f;
  moe.scale = c.get("routed_scaling_factor", 1.0f);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  moe.bank = "switch_mlp";
  moe.scoring = Scoring::sigmoid;
  moe.correction = "gate.e_score_correction_bias";
  const long long shared =
      static_cast<long long>(moe.width) *
      c.integer(c.has("n_shared_experts") ? "n_shared_experts" : "num_shared_experts", 0, 1024, 1);
  if (shared > kMaxWidth)
    fail(ErrorKind::bad_checkpoint,
         "{}: n_shared_experts times moe_intermediate_size: expected at most {}, found {}", c.where(),
         kMaxWidth, shared);
  moe.shared.width = static_cast<int>(shared);
  return moe;
}

std::vector<Rule> stack_experts() { return {stack("*.mlp.experts.#.*", "*.mlp.switch_mlp.*")}; }

bool is_sparse(const Config& c, int layer, int layers, int first_default) {
  const auto types = c.get<std::vector<std::string>>("mlp_layer_types", {});
  if (types.empty()) {
    const int first = c.integer("first_k_dense_replace", 0, kMaxLayers, first_default);
    return layer >= first && layer % c.integer("moe_layer_freq", 1, kMaxLayers, 1) == 0;
  }
  if (static_cast<int>(types.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: mlp_layer_types: expected {} entries, found {}", c.where(), layers,
         types.size());
  const std::string& type = types[static_cast<size_t>(layer)];
  if (type != "sparse" && type != "dense")
    fail(ErrorKind::bad_checkpoint, "{}: mlp_layer_types: expected dense or sparse, found \"{}\"", c.where(),
         type);
  return type == "sparse";
}

std::variant<SparseMoe, GatedMlp> sparse_or_dense(const Weights& mlp, const Config& c, int hidden,
                                                  const MoeOptions& moe, bool sparse) {
  if (sparse) return SparseMoe(mlp, hidden, moe);
  return GatedMlp(mlp, hidden, c.integer("intermediate_size", 1, kMaxWidth), moe.activation);
}

ExpertRouter::ExpertRouter(const Weights& w, int hidden, const MoeOptions& options)
    : gate_(w.linear(options.router, options.experts + options.zero_experts, hidden, options.router_bias)),
      o_(options) {
  const int all = o_.experts + o_.zero_experts;
  if (!o_.correction.empty()) correction_ = w.tensor(o_.correction, {all});
  if (o_.per_token > all || all % o_.groups != 0 || o_.kept_groups > o_.groups ||
      o_.per_token > all / o_.groups * o_.kept_groups ||
      (o_.groups > 1 && o_.group_score == GroupScore::best_two && all / o_.groups < 2))
    fail(ErrorKind::bad_checkpoint,
         "{}: {} of {} experts for each token from {} of {} groups: the numbers do not fit together",
         w.path(), o_.per_token, all, o_.kept_groups, o_.groups);
}

std::pair<array, array> ExpertRouter::operator()(const array& x) const {
  array logits = gate_(x);
  if (o_.router_cap > 0.0f)
    logits = scaled(kernels::activate(scaled(logits, 1.0f / o_.router_cap), Activation::tanh), o_.router_cap);
  auto [chosen, weights] =
      kernels::route(logits, fault("correction bias dropped") ? std::nullopt : correction_, form());
  if (fault("expert weights dropped")) weights = scaled(mx::ones_like(weights), form().scale);
  return {chosen, weights};
}

kernels::RouteForm ExpertRouter::form() const {
  const bool grouped = !fault("expert groups ignored");
  return {.per_token = o_.per_token,
          .scoring = o_.scoring,
          .groups = grouped ? o_.groups : 1,
          .kept_groups = grouped ? o_.kept_groups : 1,
          .group_score = o_.group_score,
          .renormalize = o_.renormalize != fault("expert weights renormalised wrongly"),
          .renorm_eps = o_.renorm_eps,
          .renorm_floor = o_.renorm_floor,
          .scale = fault("routed scale dropped") ? 1.0f : o_.scale};
}

std::shared_ptr<ExpertChoice> ExpertRouter::choose(PhaseList& list) const {
  return choice_phases(list, {.gate = gate_,
                              .cap = o_.router_cap,
                              .correction = correction_,
                              .form = form(),
                              .experts = o_.experts});
}

SparseMoe::SparseMoe(const Weights& w, int hidden, const MoeOptions& options) : o_(options) {
  if (!o_.router.empty()) router_.emplace(w, hidden, options);
  const Weights bank = w / o_.bank;
  const int read = o_.latent.width > 0 ? o_.latent.width : hidden;
  if (o_.latent.width > 0) {
    into_ = w.linear(o_.latent.into, read, hidden, o_.latent.bias);
    back_ = w.linear(o_.latent.back, hidden, read, o_.latent.bias);
    if (!o_.latent.norm.empty()) latent_norm_ = w.rms_norm(o_.latent.norm, read, o_.latent.eps);
  }
  const bool plain = o_.gated && !o_.clamp && o_.expert_bias == Bias::none;
  if (plain)
    gate_up_ = bank.gated_bank("gate_proj", "up_proj", o_.experts, o_.width, read);
  else if (o_.gated)
    up_ = bank.fused_bank({"gate_proj", "up_proj"}, o_.experts, o_.width, read, o_.expert_bias);
  else
    up_ = bank.bank("up_proj", o_.experts, o_.width, read, o_.expert_bias);
  down_ = bank.bank("down_proj", o_.experts, read, o_.width, o_.expert_bias);
  if (o_.shared.width == 0) return;
  const Weights own = w / o_.shared.name;
  if (o_.shared.gated)
    shared_.emplace(own, hidden, o_.shared.width, o_.activation, o_.shared.bias, GatedMlpNames{},
                    o_.shared.clamp);
  else
    plain_shared_.emplace(own, "up_proj", "down_proj", hidden, o_.shared.width, o_.activation,
                          o_.shared.bias);
  if (o_.shared.mix == SharedMix::gated)
    shared_gate_ = w.linear(o_.shared.gate, 1, hidden, Bias::none);
  else if (o_.shared.mix == SharedMix::coefficient)
    shared_gate_ = w.linear(o_.shared.gate, 2, hidden, Bias::required);
}

array SparseMoe::experts(const array& x, const array& chosen) const {
  const auto product = [&](const array& in, const Linear& bank) {
    const array y = bank.gather(in, chosen);
    return bank.bias && !fault("expert bias dropped") ? mx::add(y, mx::take(*bank.bias, chosen, 0)) : y;
  };
  const auto inner = [&] {
    if (gate_up_.out > 0) return gate_up_.gather(x, chosen, o_.activation);
    const array y = product(x, up_);
    if (!o_.gated) return kernels::activate(y, o_.activation);
    if (o_.clamp) return o_.clamp->halves(y);
    const auto parts = mx::split(y, 2, -1);
    return mx::multiply(kernels::activate(parts[0], o_.activation), parts[1]);
  };
  return product(inner(), down_);
}

array SparseMoe::routed(const array& x, array chosen, array weights) const {
  array identity = weights;  // the weight that an input keeps for itself
  if (o_.zero_experts > 0) {
    const array zero = mx::greater_equal(chosen, array(o_.experts));
    identity = kernels::weighted_sum(mx::expand_dims(mx::where(zero, weights, array(0.0f)), -1),
                                     mx::ones_like(weights));
    weights = mx::where(zero, array(0.0f), weights);
    chosen = mx::where(zero, array(0), chosen);
  }
  const array sum =
      o_.weighs_input && !fault("expert output weighed")
          ? kernels::weighted_sum(
                experts(mx::multiply(mx::expand_dims(x, 1), mx::expand_dims(weights, -1)), chosen),
                mx::ones_like(weights))
          : kernels::weighted_sum(experts(x, chosen), weights);
  if (o_.zero_experts == 0 || fault("zero experts dropped")) return sum;
  return mx::add(sum, mx::multiply(x, identity));
}

array SparseMoe::shared(const array& x, const Residual& residual) const {
  return shared_ ? (*shared_)(x, residual) : (*plain_shared_)(x, residual);
}

array SparseMoe::joined(const array& x, const array& routed, const Residual& residual) const {
  if (!has_shared() || fault("shared experts dropped")) return residual ? mx::add(*residual, routed) : routed;
  const auto plus = [&](const array& y) { return residual ? mx::add(*residual, y) : y; };
  switch (o_.shared.mix) {
    case SharedMix::sum:
      return mx::add(routed, shared(x, residual));
    case SharedMix::gated: {
      const array opened = kernels::activate(shared_gate_(x), Activation::sigmoid);
      return plus(mx::add(routed, mx::multiply(shared(x), opened)));
    }
    case SharedMix::average:
      return plus(scaled(mx::add(routed, shared(x)), 0.5f));
    case SharedMix::coefficient:
      break;
  }
  const auto [mine, other] = two_weights(shared_gate_(x));
  return plus(mx::add(mx::multiply(routed, mine), mx::multiply(shared(x), other)));
}

array SparseMoe::with(const array& x, const array& chosen, const array& weights,
                      const Residual& residual) const {
  array sum = routed(into_ ? (*into_)(x) : x, chosen, weights);
  if (latent_norm_ && !fault("latent norm left out")) sum = (*latent_norm_)(sum);
  return joined(x, back_ ? (*back_)(sum) : sum, residual);
}

array SparseMoe::operator()(const array& x, const Residual& residual) const {
  const auto [chosen, weights] = router_.value()(x);
  return with(x, chosen, weights, residual);
}

bool SparseMoe::phases(PhaseList& list) const {
  const auto residual = list.residual();
  const auto choice = router_ ? router_->choose(list) : nullptr;
  if (!choice) return false;
  const auto x = list.value();

  BesideExperts beside{.base = residual};
  if (has_shared()) {
    if (o_.shared.mix == SharedMix::gated) {
      beside.mix = BesideExperts::gated;
      beside.gate = list.aside(shared_gate_, Activation::sigmoid);
    } else if (o_.shared.mix == SharedMix::coefficient) {
      beside.mix = BesideExperts::coefficient;
      beside.gate = list.aside(shared_gate_, Activation::none);
    } else if (o_.shared.mix == SharedMix::average) {
      beside.mix = BesideExperts::average;
    }
    const bool gates = beside.mix == BesideExperts::gated || beside.mix == BesideExperts::coefficient;
    if (gates && beside.gate == PhaseList::kNone) return false;
    if (o_.shared.mix != SharedMix::sum) list.set_residual(PhaseList::kNone);
    if (!(shared_ ? shared_->phases(list) : plain_shared_->phases(list))) return false;
    // A plain sum has taken the residual with it.
    (o_.shared.mix == SharedMix::sum ? beside.base : beside.shared) = list.value();
    list.set_value(x);
  }

  if (into_ && !list.linear(*into_)) return false;
  const ExpertParts parts{.gate_up = gate_up_.out > 0 ? &gate_up_ : nullptr,
                          .up = &up_,
                          .down = down_,
                          .gated = o_.gated,
                          .activation = o_.activation,
                          .clamp = o_.clamp,
                          .weighs_input = o_.weighs_input,
                          .keeps_input = o_.zero_experts > 0};
  if (!expert_phases(list, choice, parts, into_ ? BesideExperts{} : beside)) return false;
  if (!into_) return true;
  if ((latent_norm_ && !list.norm(*latent_norm_)) || !list.linear(*back_)) return false;
  beside_phases(list, beside, back_->out);
  return true;
}

}  // namespace mlxcel
