#include "models/mtp.h"

#include <fmt/format.h>

#include "checkpoint/rules.h"

namespace mlxcel {

std::pair<array, array> MtpHead::operator()(Step& step, const array& states) const {
  const array both =
      mx::concatenate({block_.embedding_norm(shared_.embedding(step)), block_.hidden_norm(states)}, 1);
  const array h = block_.layer(block_.join(both), step);
  const array normed = block_.norm(h);
  const auto& wanted = step.wanted();
  array chosen = normed;
  if (wanted.empty()) return {mx::zeros({0, vocab()}, mx::float32), h};
  if (static_cast<int>(wanted.size()) != step.count())
    chosen = mx::take(normed, array(wanted.data(), {static_cast<int>(wanted.size())}, mx::int32), 0);
  return {shared_.head(chosen), block_.goes_on_normed ? normed : h};
}

MtpBlock deepseek_mtp(const Weights& mtp, int hidden, float eps, Block layer) {
  return {.embedding_norm = mtp.rms_norm("enorm", hidden, eps),
          .hidden_norm = mtp.rms_norm("hnorm", hidden, eps),
          .join = mtp.linear("eh_proj", hidden, 2 * hidden, Bias::none),
          .layer = std::move(layer),
          .norm = mtp.rms_norm("shared_head.norm", hidden, eps),
          .goes_on_normed = false};
}

std::vector<Rule> mtp_layer_rules(int number) {
  return {rename(fmt::format("model.layers.{}.*", number), "mtp.*"), drop("model.*"), drop("lm_head.*"),
          drop("mtp.embed_tokens.*"), drop("mtp.shared_head.head.*")};
}

}  // namespace mlxcel
