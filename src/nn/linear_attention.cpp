#include "nn/linear_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/recurrent.h"
#include "nn/fault.h"

namespace mlxcel {

std::vector<float> fading_slopes(int heads, int layer, int layers) {
  const auto spread = [](int n, int count, int every) {
    std::vector<double> list;
    for (int i = 0; i < count; ++i)
      list.push_back(std::pow(2.0, -std::pow(2.0, 3.0 - std::log2(n)) * (i * every + 1)));
    return list;
  };
  int whole = 1;
  while (2 * whole <= heads) whole *= 2;
  auto all = spread(whole, whole, 1);
  const auto more = spread(2 * whole, heads - whole, 2);
  all.insert(all.end(), more.begin(), more.end());
  const double depth = 1.0 - std::max(0, layer - 1) / static_cast<double>(std::max(1, layers - 1)) + 1e-5;
  std::vector<float> values;
  for (const double slope : all) values.push_back(static_cast<float>(-slope * depth));
  return values;
}

LinearAttention::LinearAttention(const Weights& w, const Dims& d, const LinearAttentionOptions& o)
    : width_(d.heads * d.head_dim),
      groups_(o.groups),
      eps_(o.eps),
      qkv_(w.linear("query_key_value", 3 * width_, d.hidden, o.qkv_bias)),
      gate_(w.linear("g_proj", width_, d.hidden, Bias::none)),
      out_(w.linear("dense", d.hidden, width_, o.bias)),
      norm_weight_(w.tensor("g_norm.weight", {width_})),
      slopes_(o.slopes.data(), {d.heads}, mx::float32),
      zeros_(std::vector<float>(static_cast<size_t>(d.heads), 0.0f).data(), {d.heads}, mx::float32),
      plan_{.heads = d.heads, .kv_heads = d.heads, .head_dim = d.head_dim, .rope = o.rope},
      slot_(w.layout().add_recurrent({.name = "linear", .shape = {d.heads, d.head_dim, d.head_dim}})) {
  if (!o.qk_norm) return;
  plan_.q_norm = w.rms_norm("q_norm", d.head_dim, o.qk_norm->eps);
  plan_.k_norm = w.rms_norm("k_norm", d.head_dim, o.qk_norm->eps);
}

array LinearAttention::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0);
  const auto [q, k, v] = split_heads(qkv_(x), plan_, step);
  const float scale = 1.0f / std::sqrt(static_cast<float>(plan_.head_dim));
  const array rates = fault("memory never fades") ? zeros_ : slopes_;
  const auto [seen, state] =
      kernels::ssm_scan(v, mx::ones({tokens, plan_.heads}), rates, k, mx::multiply(q, array(scale)), zeros_,
                        step.recurrent(slot_), step.offsets());
  step.set_recurrent(slot_, state);
  const array normed =
      kernels::rms_norm(mx::reshape(seen, {tokens, groups_, width_ / groups_}), std::nullopt, eps_);
  const array y = mx::multiply(mx::reshape(normed, {tokens, width_}), norm_weight_);
  const array gate = kernels::activate(gate_(x), Activation::sigmoid);
  return out_(fault("output gate left out") ? y : mx::multiply(y, gate), residual);
}

}  // namespace mlxcel
