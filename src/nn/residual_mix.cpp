#include "nn/residual_mix.h"

#include "nn/fault.h"

namespace mlxcel {

ResidualMix::ResidualMix(const Weights& w, const std::string& name, int hidden, float eps) {
  const bool joined = w.has(name + "_score.weight");
  norm_ = joined ? RmsNorm{.weight = std::nullopt, .eps = eps} : w.rms_norm(name + "_norm", hidden, eps);
  proj_ = w.linear(name + (joined ? "_score" : "_proj"), 1, hidden, Bias::none);
}

array ResidualMix::operator()(const std::vector<array>& blocks, const array& sum) const {
  if (blocks.empty() || fault("residual mix left out")) return sum;
  std::vector<array> logits;
  for (const array& block : blocks) logits.push_back(proj_(norm_(block)));
  logits.push_back(proj_(norm_(sum)));
  const array share = mx::softmax(mx::concatenate(logits, 1), std::vector<int>{-1}, /*precise=*/true);
  const auto part = [&](size_t i, const array& x) {
    const int at = static_cast<int>(i);
    return mx::multiply(x, mx::slice(share, {0, at}, {share.shape(0), at + 1}));
  };
  array mixed = part(blocks.size(), sum);
  for (size_t i = 0; i < blocks.size(); ++i) mixed = mx::add(mixed, part(i, blocks[i]));
  return mixed;
}

}  // namespace mlxcel
