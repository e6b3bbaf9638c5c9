#include "models/mtp.h"

#include <fmt/format.h>

#include "checkpoint/rules.h"

namespace mlxcel {

std::pair<array, array> MtpHead::operator()(Step& step, const array& states) const {
  const array token = block_.embedding_norm(shared_.embedding(step)), state = block_.hidden_norm(states);
  array h = block_.join(mx::concatenate(
      block_.state_first ? std::vector<array>{state, token} : std::vector<array>{token, state}, 1));
  for (const Block& layer : block_.layers) h = layer(h, step);
  const array normed = block_.norm ? (*block_.norm)(h) : h;
  const auto& wanted = step.wanted();
  array chosen = normed;
  if (wanted.empty()) return {mx::zeros({0, vocab()}, mx::float32), h};
  if (static_cast<int>(wanted.size()) != step.count())
    chosen = mx::take(normed, array(wanted.data(), {static_cast<int>(wanted.size())}, mx::int32), 0);
  return {shared_.head(chosen), block_.goes_on_normed ? normed : h};
}

MtpBlock deepseek_mtp(const Weights& mtp, int hidden, float eps, std::vector<Block> layers, const char* norm,
                      bool goes_on_normed) {
  return {.embedding_norm = mtp.rms_norm("enorm", hidden, eps),
          .hidden_norm = mtp.rms_norm("hnorm", hidden, eps),
          .join = mtp.linear("eh_proj", hidden, 2 * hidden, Bias::none),
          .layers = std::move(layers),
          .norm = mtp.rms_norm(norm, hidden, eps),
          .goes_on_normed = goes_on_normed};
}

MtpBlock qwen_mtp(const Weights& mtp, int hidden, float eps, std::vector<Block> layers) {
  return {.embedding_norm = mtp.rms_norm("pre_fc_norm_embedding", hidden, eps),
          .hidden_norm = mtp.rms_norm("pre_fc_norm_hidden", hidden, eps),
          .join = mtp.linear("fc", hidden, 2 * hidden, Bias::none),
          .layers = std::move(layers),
          .norm = mtp.rms_norm("norm", hidden, eps),
          .goes_on_normed = true};
}

std::vector<Rule> mtp_rules_of(const std::string& stem) {
  std::vector<Rule> rules;
  if (stem != "mtp.") rules.push_back(rename(stem + "*", "mtp.*"));
  return rules + std::vector<Rule>{drop("model.*"), drop("backbone.*"), drop("lm_head.*"),
                                   drop("mtp.embed_tokens.*"), drop("mtp.shared_head.head.*")};
}

std::vector<Rule> mtp_layer_rules(int number) {
  return mtp_rules_of(fmt::format("model.layers.{}.", number));
}

}  // namespace mlxcel
