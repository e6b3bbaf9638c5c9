#include "sample/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "sample/logits.h"
#include "sample/philox.h"

namespace mlxcel {
namespace {

constexpr float kMaxEdit = 100.0f;
// Filters compare sums of f32 exponentials: a set that reaches top_p to within rounding has reached it.
constexpr double kFilterSlack = 1e-6;
constexpr uint32_t kRandomSeed = 0xFFFFFFFFu;  // the wire's word for "a fresh one"
constexpr size_t kDrawBlock = 256;

void check_range(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high))
    fail_param(name, "{}: expected a number from {} to {}, found {}", name, low, high, value);
}

uint32_t fresh_seed() {
  std::random_device device;
  uint32_t seed = kRandomSeed;
  while (seed == kRandomSeed) seed = static_cast<uint32_t>(device());
  return seed;
}

void require_finite(const logits::Peak& peak, std::span<const float> row) {
  if (peak.finite) return;
  const auto bad = std::find_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
  fail(ErrorKind::internal, "the model's logits are not finite: token {} of {} has {}", bad - row.begin(),
       row.size(), bad == row.end() ? 0.0f : *bad);
}

void add_logprobs(Draw& draw, std::span<const float> row, float highest, int top) {
  const double log_sum = static_cast<double>(highest) + std::log(logits::sum_weights(row, highest));
  const auto logprob = [&](float logit) {
    return static_cast<float>(std::min(0.0, static_cast<double>(logit) - log_sum));
  };
  draw.logprob = logprob(row[static_cast<size_t>(draw.token)]);
  logits::select_top(row, top, draw.top);
  for (auto& entry : draw.top) entry.logprob = logprob(entry.logprob);
}

}  // namespace

void validate(const SamplingParams& p, int vocab_size) {
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  check_range("temperature", p.temperature, 0.0, kFloatMax);
  if (p.top_k < 0) fail_param("top_k", "top_k: expected 0 (off) or more, found {}", p.top_k);
  check_range("top_p", p.top_p, 0.0, 1.0);
  check_range("min_p", p.min_p, 0.0, 1.0);
  check_range("repeat_penalty", p.repeat_penalty, 0.01f, kMaxEdit);
  check_range("frequency_penalty", p.frequency_penalty, -kMaxEdit, kMaxEdit);
  check_range("presence_penalty", p.presence_penalty, -kMaxEdit, kMaxEdit);
  if (p.repeat_last_n < -1)
    fail_param("repeat_last_n", "repeat_last_n: expected -1 (whole context) or more, found {}", p.repeat_last_n);
  if (p.min_keep < 0) fail_param("min_keep", "min_keep: expected 0 or more, found {}", p.min_keep);
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab_size)
      fail_param("logit_bias", "logit_bias: key {} is outside the vocabulary of {} tokens", token, vocab_size);
    if (!(bias >= -kMaxEdit && bias <= kMaxEdit))
      fail_param("logit_bias", "logit_bias: key {}: expected a value from -100 to 100, found {}", token, bias);
  }
  std::vector<int32_t> banned = p.banned;
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  for (int32_t token : banned)
    if (token < 0 || token >= vocab_size)
      fail_param("banned", "banned: token {} is outside the vocabulary of {} tokens", token, vocab_size);
  if (static_cast<int>(banned.size()) >= vocab_size)
    fail_param("banned", "banned: all {} tokens of the vocabulary are banned", vocab_size);
  if (p.logprobs < -1 || p.logprobs > vocab_size)
    fail_param("logprobs", "logprobs: expected -1 (none) to {}, found {}", vocab_size, p.logprobs);
}

Sampler::Sampler(const SamplingParams& params, int vocab_size, int choice)
    : params_(params), vocab_size_(vocab_size), choice_(choice), seed_(params.seed.value_or(kRandomSeed)) {
  validate(params, vocab_size);
  if (seed_ == kRandomSeed) seed_ = fresh_seed();
}

bool Sampler::edits(std::span<const int32_t> history) const {
  if (!params_.logit_bias.empty() || !params_.banned.empty()) return true;
  const bool penalties = params_.repeat_penalty != 1.0f || params_.frequency_penalty != 0.0f ||
                         params_.presence_penalty != 0.0f;
  return penalties && params_.repeat_last_n != 0 && !history.empty();
}

std::span<const float> Sampler::edited(std::span<const float> row, std::span<const int32_t> history) {
  scratch_.assign(row.begin(), row.end());
  for (const auto& [token, bias] : params_.logit_bias) scratch_[static_cast<size_t>(token)] += bias;
  for (int32_t token : params_.banned)
    scratch_[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();

  const bool penalties = params_.repeat_penalty != 1.0f || params_.frequency_penalty != 0.0f ||
                         params_.presence_penalty != 0.0f;
  if (!penalties || params_.repeat_last_n == 0) return scratch_;
  if (params_.repeat_last_n > 0 && history.size() > static_cast<size_t>(params_.repeat_last_n))
    history = history.last(static_cast<size_t>(params_.repeat_last_n));
  counts_.resize(static_cast<size_t>(vocab_size_), 0);
  for (int32_t token : history)
    if (token < 0 || token >= vocab_size_)
      fail(ErrorKind::internal, "sampler: history has token {}, the vocabulary {} tokens", token, vocab_size_);
  for (int32_t token : history) ++counts_[static_cast<size_t>(token)];
  for (int32_t token : history) {
    const auto at = static_cast<size_t>(token);
    const int32_t count = counts_[at];
    if (count == 0) continue;  // done already
    counts_[at] = 0;
    float& logit = scratch_[at];
    logit = logit > 0.0f ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    logit -= static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
  }
  return scratch_;
}

Draw Sampler::sample(std::span<const float> row, std::span<const int32_t> history, int64_t position) {
  if (row.size() != static_cast<size_t>(vocab_size_))
    fail(ErrorKind::internal, "sampler: expected {} logits, found {}", vocab_size_, row.size());
  const logits::Peak raw = logits::peak(row);
  require_finite(raw, row);

  Draw draw;
  if (edits(history)) {
    const std::span<const float> changed = edited(row, history);
    const logits::Peak best = logits::peak(changed);
    if (!std::isfinite(best.value))
      fail(ErrorKind::internal, "sampler: bias and penalties left {} as the highest logit", best.value);
    draw.token = greedy() ? best.token : this->draw(changed, best.value, position);
  } else {
    draw.token = greedy() ? raw.token : this->draw(row, raw.value, position);
  }
  if (params_.logprobs >= 0) add_logprobs(draw, row, raw.value, params_.logprobs);
  return draw;
}

int32_t Sampler::draw(std::span<const float> row, float highest, int64_t position) {
  const double uniform = philox_uniform(seed_, static_cast<uint32_t>(choice_), static_cast<uint64_t>(position));
  const auto vocab = static_cast<int>(row.size());
  const int min_keep = std::clamp(params_.min_keep, 1, vocab);

  if (params_.top_k > 0 && params_.top_k < vocab) {
    logits::select_top(row, std::max(params_.top_k, min_keep), ranked_);
    double total = 0.0;
    for (const auto& entry : ranked_) total += logits::weight(entry.logprob, highest, 1.0f);
    return draw_ranked(highest, total, uniform);
  }
  // Without top_k nothing is ranked: the filters come down to one cut.
  logits::Cut cut{-std::numeric_limits<float>::infinity(), vocab};
  if (params_.top_p < 1.0f) cut = logits::nucleus(row, highest, static_cast<double>(params_.top_p), kFilterSlack);
  if (params_.min_p > 0.0f) {
    const auto lowest = static_cast<float>(min_p_floor(highest));
    if (lowest > cut.logit) cut = {lowest, vocab};
  }
  if (min_keep > 1) {
    logits::select_top(row, min_keep, ranked_);
    const auto& last = ranked_.back();
    if (!cut.keeps(last.logprob, last.token)) cut = {last.logprob, last.token};
  }
  return draw_all(row, highest, cut, uniform);
}

double Sampler::min_p_floor(float highest) const {
  return static_cast<double>(highest) + std::log(static_cast<double>(params_.min_p)) - kFilterSlack;
}

// From ranked_, whose filters all keep a prefix; `total` is the weight top_p refers to.
int32_t Sampler::draw_ranked(float highest, double total, double uniform) {
  const size_t min_keep = std::min(ranked_.size(), static_cast<size_t>(std::max(params_.min_keep, 1)));
  size_t kept = ranked_.size();
  if (params_.top_p < 1.0f) {
    const double target = (static_cast<double>(params_.top_p) - kFilterSlack) * total;
    double reached = 0.0;
    for (kept = 0; kept < ranked_.size();) {
      reached += logits::weight(ranked_[kept].logprob, highest, 1.0f);
      ++kept;
      if (reached >= target && kept >= min_keep) break;
    }
  }
  if (params_.min_p > 0.0f) {
    const double lowest = min_p_floor(highest);
    while (kept > min_keep && static_cast<double>(ranked_[kept - 1].logprob) < lowest) --kept;
  }
  const auto weight_of = [&](size_t i) {
    return std::exp((static_cast<double>(ranked_[i].logprob) - highest) / params_.temperature);
  };
  double sum = 0.0;
  for (size_t i = 0; i < kept; ++i) sum += weight_of(i);
  const double aim = uniform * sum;
  double reached = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    reached += weight_of(i);
    if (reached > aim) return ranked_[i].token;
  }
  return ranked_.front().token;  // rounding left the aim at the very end: only when sum is one weight
}

// Every token up to the cut, in order of ids: block sums, then a walk inside the block hit.
int32_t Sampler::draw_all(std::span<const float> row, float highest, const logits::Cut& cut, double uniform) const {
  const auto scale = static_cast<float>(
      std::min(1.0 / static_cast<double>(params_.temperature), static_cast<double>(std::numeric_limits<float>::max())));
  const bool everything = cut.logit == -std::numeric_limits<float>::infinity();
  const auto weight_of = [&](size_t i) {
    return cut.keeps(row[i], static_cast<int32_t>(i)) ? logits::weight(row[i], highest, scale) : 0.0f;
  };
  std::vector<double> blocks((row.size() + kDrawBlock - 1) / kDrawBlock);
  double total = 0.0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const size_t begin = b * kDrawBlock;
    const auto part = row.subspan(begin, std::min(kDrawBlock, row.size() - begin));
    if (everything) {
      total += logits::sum_weights(part, highest, scale);
    } else if (logits::any_from(part, cut.logit)) {
      for (size_t i = 0; i < part.size(); ++i) total += static_cast<double>(weight_of(begin + i));
    }
    blocks[b] = total;
  }
  const double aim = uniform * total;
  const size_t block = std::min(
      static_cast<size_t>(std::upper_bound(blocks.begin(), blocks.end(), aim) - blocks.begin()), blocks.size() - 1);
  double reached = block == 0 ? 0.0 : blocks[block - 1];
  int32_t last = -1;  // the block's last token with any weight, should lane sums differ in their last bit
  const size_t end = std::min((block + 1) * kDrawBlock, row.size());
  for (size_t i = block * kDrawBlock; i < end; ++i) {
    const float w = weight_of(i);
    if (!(w > 0.0f)) continue;
    reached += static_cast<double>(w);
    last = static_cast<int32_t>(i);
    if (reached > aim) break;
  }
  return last >= 0 ? last : logits::peak(row).token;
}

Draw score(std::span<const float> row, int32_t token, int top) {
  if (token < 0 || static_cast<size_t>(token) >= row.size())
    fail(ErrorKind::internal, "score: token {} is outside {} logits", token, row.size());
  const logits::Peak peak = logits::peak(row);
  require_finite(peak, row);
  Draw draw;
  draw.token = token;
  add_logprobs(draw, row, peak.value, std::max(top, 0));
  return draw;
}

}  // namespace mlxcel
