#include "sample/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "base/error.h"
#include "sample/chain.h"
#include "sample/dry.h"
#include "sample/logits.h"
#include "sample/philox.h"

namespace mlxcel {
namespace {

// Filters compare sums of f32 exponentials: a set that reaches top_p to within rounding has reached it.
constexpr double kFilterSlack = 1e-6;
constexpr uint32_t kRandomSeed = 0xFFFFFFFFu;  // the wire's word for "a fresh one"
constexpr size_t kDrawBlock = 256;
// Lanes of a position's random numbers: 0 draws, 1 is XTC's.
constexpr uint32_t kProposeLane = 2, kAcceptLane = 3;

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

Sampler::Sampler(const SamplingParams& params, int vocab_size, int choice,
                 std::shared_ptr<const TokenBytes> bytes)
    : params_(params), vocab_size_(vocab_size), choice_(choice), seed_(params.seed.value_or(kRandomSeed)) {
  validate(params, vocab_size);
  if (seed_ == kRandomSeed) seed_ = fresh_seed();
  plan();
  const auto in = [](const std::vector<Stage>& stages, Stage stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
  };
  if (in(first_, Stage::dry) || in(rest_, Stage::dry))
    dry_ = std::make_unique<Dry>(params_, std::move(bytes));
  if (!fast_) candidates_ = std::make_unique<Candidates>();
  mu_ = 2.0f * params_.mirostat_tau;
  // As if the target had been met so far.
  adaptive_weight_ = 1.0 / (1.0 - static_cast<double>(params_.adaptive_decay));
  adaptive_sum_ = static_cast<double>(params_.adaptive_target) * adaptive_weight_;
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

// Stages that are not named or change nothing are dropped; what is left decides the path.
void Sampler::plan() {
  const auto named = [&](Stage stage) {
    return std::find(params_.samplers.begin(), params_.samplers.end(), stage) != params_.samplers.end();
  };
  if (!named(Stage::top_k)) params_.top_k = 0;
  if (!named(Stage::temperature)) params_.temperature = 1.0f, params_.dynatemp_range = 0.0f;
  const bool penalties =
      params_.repeat_last_n != 0 && (params_.repeat_penalty != 1.0f || params_.frequency_penalty != 0.0f ||
                                     params_.presence_penalty != 0.0f);
  const auto acts = [&](Stage stage) {
    switch (stage) {
      case Stage::penalties:
        return penalties;
      case Stage::dry:
        return params_.dry_multiplier > 0.0f && params_.dry_penalty_last_n != 0;
      case Stage::top_n_sigma:
        return params_.top_n_sigma > 0.0f;
      case Stage::top_k:
        return params_.top_k > 0 && params_.top_k < vocab_size_;
      case Stage::typ_p:
        return params_.typical_p < 1.0f;
      case Stage::top_p:
        return params_.top_p < 1.0f;
      case Stage::min_p:
        return params_.min_p > 0.0f;
      case Stage::xtc:
        return params_.xtc_probability > 0.0f && params_.xtc_threshold <= 0.5f;
      case Stage::temperature:
        return params_.temperature != 1.0f || params_.dynatemp_range > 0.0f;
      case Stage::adaptive_p:
        return params_.adaptive_target >= 0.0f;
    }
    return false;
  };
  for (Stage stage : params_.samplers) {
    const bool edit = stage == Stage::penalties || stage == Stage::dry;
    if (acts(stage)) (edit && rest_.empty() ? first_ : rest_).push_back(stage);
  }
  if (params_.mirostat > 0) rest_ = {Stage::temperature};
  // It looks at the distribution that everything else left.
  if (const auto found = std::find(rest_.begin(), rest_.end(), Stage::adaptive_p); found != rest_.end())
    std::rotate(found, found + 1, rest_.end());

  fast_ = params_.mirostat == 0 && params_.dynatemp_range == 0.0f && !params_.post_sampling_probs;
  const Stage quick[] = {Stage::top_k, Stage::top_p, Stage::min_p, Stage::temperature};
  const auto* at = std::begin(quick);
  for (Stage stage : rest_) {
    at = std::find(at, std::end(quick), stage);
    if (at == std::end(quick)) fast_ = false;
  }
  const auto runs = [&](Stage stage) { return std::find(rest_.begin(), rest_.end(), stage) != rest_.end(); };
  if (fast_ && !runs(Stage::top_p)) params_.top_p = 1.0f;
  if (fast_ && !runs(Stage::min_p)) params_.min_p = 0.0f;
}

// Calls edit(token, count) for every token of the window.
template <class Edit>
void Sampler::penalise(std::span<const int32_t> history, Edit&& edit) {
  if (params_.repeat_last_n > 0 && history.size() > static_cast<size_t>(params_.repeat_last_n))
    history = history.last(static_cast<size_t>(params_.repeat_last_n));
  counts_.resize(static_cast<size_t>(vocab_size_), 0);
  for (int32_t token : history)
    if (token < 0 || token >= vocab_size_)
      fail(ErrorKind::internal, "sampler: history has token {}, the vocabulary {} tokens", token,
           vocab_size_);
  for (int32_t token : history) ++counts_[static_cast<size_t>(token)];
  for (int32_t token : history) {
    int32_t& count = counts_[static_cast<size_t>(token)];
    if (count == 0) continue;  // done already
    edit(token, std::exchange(count, 0));
  }
}

std::span<const float> Sampler::edited(std::span<const float> row, std::span<const int32_t> history,
                                       TokenMask mask) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  scratch_.assign(row.begin(), row.end());
  for (const auto& [token, bias] : params_.logit_bias) scratch_[static_cast<size_t>(token)] += bias;
  for (int32_t token : params_.banned) scratch_[static_cast<size_t>(token)] = kNever;
  if (!mask.empty()) logits::apply_mask(scratch_, mask);
  if (params_.language_bias) {
    bool left = false;
    std::vector<float> before;
    before.reserve(params_.language_bias->size());
    for (const auto& [token, bias] : *params_.language_bias) {
      before.push_back(scratch_[static_cast<size_t>(token)]);
      scratch_[static_cast<size_t>(token)] += bias;
    }
    for (size_t i = 0; i < scratch_.size() && !left; ++i) left = scratch_[i] > kNever;
    // A grammar may leave nothing but a language that is banned: then it has the say.
    for (size_t i = 0; i < before.size() && !left; ++i)
      scratch_[static_cast<size_t>((*params_.language_bias)[i].first)] = before[i];
  }
  for (Stage stage : first_) {
    if (stage == Stage::penalties) {
      penalise(history, [&](int32_t token, int32_t count) {
        float& logit = scratch_[static_cast<size_t>(token)];
        logit = logit > 0.0f ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
        logit -= static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
      });
    } else {
      for (const auto& [token, penalty] : dry_->penalties(history)) {
        float& logit = scratch_[static_cast<size_t>(token)];
        if (logit > kNever) logit = std::max(logit - penalty, std::numeric_limits<float>::lowest());
      }
    }
  }
  return scratch_;
}

Draw Sampler::sample(std::span<const float> row, std::span<const int32_t> history, int64_t position,
                     TokenMask mask, const Proposal* drafted) {
  if (row.size() != static_cast<size_t>(vocab_size_))
    fail(ErrorKind::internal, "sampler: expected {} logits, found {}", vocab_size_, row.size());
  if (!mask.empty() && mask.size() * 32 < row.size())
    fail(ErrorKind::internal, "sampler: a mask of {} words for {} logits", mask.size(), row.size());
  const logits::Peak raw = logits::peak(row);
  require_finite(raw, row);

  Draw draw;
  const bool edits = !first_.empty() || !params_.logit_bias.empty() || !params_.banned.empty() ||
                     !mask.empty() || params_.language_bias;
  std::span<const float> now = row;
  logits::Peak best = raw;
  if (edits) {
    now = edited(row, history, mask);
    best = logits::peak(now);
    if (!std::isfinite(best.value))
      fail(ErrorKind::internal, "sampler: bias, mask and penalties left {} as the highest logit", best.value);
  }
  if (drafted && judges())
    draw.token = judged(now, history, position, *drafted);
  else if (!fast_ && (!greedy() || has_edits_behind_filters() || params_.post_sampling_probs))
    draw.token = draw_chain(now, history, position, draw);
  else
    draw.token = greedy() ? best.token : this->draw(now, best.value, position);
  if (params_.logprobs >= 0 && !params_.post_sampling_probs)
    add_logprobs(draw, row, raw.value, params_.logprobs);
  return draw;
}

double Sampler::uniform(int64_t position, uint32_t lane) const {
  return philox_uniform(seed_, static_cast<uint32_t>(choice_), static_cast<uint64_t>(position), lane);
}

bool Sampler::has_edits_behind_filters() const {
  return std::any_of(rest_.begin(), rest_.end(),
                     [](Stage s) { return s == Stage::penalties || s == Stage::dry; });
}

bool Sampler::judges() const {
  const bool learns =
      params_.mirostat > 0 || std::find(rest_.begin(), rest_.end(), Stage::adaptive_p) != rest_.end();
  return !greedy() && !learns && !params_.post_sampling_probs;
}

Proposal Sampler::propose(std::span<const float> logits, int64_t position) const {
  const auto known = logits.first(std::min(logits.size(), static_cast<size_t>(vocab_size_)));
  const float highest = *std::max_element(known.begin(), known.end());
  Proposal out{.token = 0, .odds = std::vector<float>(static_cast<size_t>(vocab_size_), 0.0f)};
  const double temperature = static_cast<double>(params_.temperature);
  double total = 0.0;
  for (size_t i = 0; i < known.size(); ++i) {
    const double w = std::exp((static_cast<double>(known[i]) - static_cast<double>(highest)) / temperature);
    if (!(w > 0.0)) continue;
    total += w;
    out.odds[i] = static_cast<float>(w);
  }
  if (!(total > 0.0)) return out;
  const double aim = uniform(position, kProposeLane) * total;
  double reached = 0.0;
  bool found = false;
  for (size_t i = 0; i < known.size(); ++i) {
    reached += static_cast<double>(out.odds[i]);
    if (!found && out.odds[i] > 0.0f) out.token = static_cast<int32_t>(i);
    found = found || reached > aim;
    out.odds[i] = static_cast<float>(static_cast<double>(out.odds[i]) / total);
  }
  return out;
}

// The drafted token with the chance p / q; else what p has beyond q decides. Together they are p.
int32_t Sampler::judged(std::span<const float> row, std::span<const int32_t> history, int64_t position,
                        const Proposal& drafted) {
  if (drafted.odds.size() != row.size() || drafted.token < 0 || drafted.token >= vocab_size_)
    fail(ErrorKind::internal, "sampler: {} odds of drafted token {} for {} logits", drafted.odds.size(),
         drafted.token, row.size());
  if (!candidates_) candidates_ = std::make_unique<Candidates>();
  run_chain(row, history, position);
  Candidates& c = *candidates_;
  const std::vector<double>& p = c.probabilities();
  const auto odds = [&](int32_t token) {
    return static_cast<double>(drafted.odds[static_cast<size_t>(token)]);
  };
  double own = 0.0, beyond = 0.0;
  for (size_t i = 0; i < c.size(); ++i) {
    if (c[i].token == drafted.token) own = p[i];
    beyond += std::max(p[i] - odds(c[i].token), 0.0);
  }
  if (uniform(position, kAcceptLane) * odds(drafted.token) < own) return drafted.token;
  const double aim = uniform(position, 0) * beyond;
  double reached = 0.0;
  int32_t last = -1;
  for (size_t i = 0; i < c.size(); ++i) {
    const double more = p[i] - odds(c[i].token);
    if (!(more > 0.0)) continue;
    reached += more;
    last = c[i].token;
    if (reached > aim) break;
  }
  return last >= 0 ? last : drafted.token;  // p is q: only rounding refused it
}

int32_t Sampler::draw_chain(std::span<const float> row, std::span<const int32_t> history, int64_t position,
                            Draw& draw) {
  const bool adaptive = run_chain(row, history, position);
  Candidates& c = *candidates_;
  const size_t at = adaptive ? draw_adaptive(uniform(position, 0)) : c.draw(uniform(position, 0));
  const std::vector<double>& p = c.probabilities();
  if (params_.mirostat > 0 && !greedy())
    mu_ -= params_.mirostat_eta * (static_cast<float>(-std::log2(p[at])) - params_.mirostat_tau);
  const int32_t token = c[at].token;
  if (params_.post_sampling_probs && params_.logprobs >= 0) {
    draw.logprob = static_cast<float>(std::log(p[at]));
    std::vector<TokenLogprob> all;
    for (size_t i = 0; i < c.size(); ++i)
      if (p[i] > 0.0) all.push_back({c[i].token, static_cast<float>(std::log(p[i]))});
    const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
      return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
    };
    const auto wanted = std::min(all.size(), static_cast<size_t>(params_.logprobs));
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(wanted), all.end(), better);
    all.resize(wanted);
    draw.top = std::move(all);
  }
  return token;
}

// What the stages leave of the row is then in candidates_; whether adaptive-p is to draw from it.
bool Sampler::run_chain(std::span<const float> row, std::span<const int32_t> history, int64_t position) {
  Candidates& c = *candidates_;
  c.start(row);
  const int min_keep = std::max(params_.min_keep, 1);
  bool adaptive = false;
  for (Stage stage : rest_) {
    switch (stage) {
      case Stage::penalties:
        penalise(history, [&](int32_t token, int32_t count) {
          c.change(token, [&](float logit) {
            const float scaled =
                logit > 0.0f ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
            return scaled -
                   (static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty);
          });
        });
        break;
      case Stage::dry:
        for (const auto& [token, penalty] : dry_->penalties(history))
          c.change(token, [&, by = penalty](float logit) {
            return std::max(logit - by, std::numeric_limits<float>::lowest());
          });
        break;
      case Stage::top_n_sigma:
        c.top_n_sigma(params_.top_n_sigma);
        break;
      case Stage::top_k:
        c.top_k(std::max(params_.top_k, min_keep));
        break;
      case Stage::typ_p:
        if (!greedy()) c.typical(params_.typical_p, min_keep);
        break;
      case Stage::top_p:
        c.top_p(params_.top_p, min_keep);
        break;
      case Stage::min_p:
        c.min_p(params_.min_p, min_keep);
        break;
      case Stage::xtc:
        if (!greedy()) c.xtc(params_.xtc_probability, params_.xtc_threshold, min_keep, uniform(position, 1));
        break;
      case Stage::temperature:
        if (!greedy())
          c.dynamic_temperature(params_.temperature, params_.dynatemp_range, params_.dynatemp_exponent);
        break;
      case Stage::adaptive_p:
        adaptive = !greedy();
        break;
    }
  }
  if (greedy())
    c.temperature(0.0f);
  else if (params_.mirostat == 1)
    c.mirostat(mu_, vocab_size_);
  else if (params_.mirostat == 2)
    c.mirostat2(mu_);
  return adaptive;
}

// Favours tokens whose own probability is near a target that moves against what was drawn before (adaptive-p,
// as llama.cpp has it): quadratic near the target, linear far from it.
size_t Sampler::draw_adaptive(double uniform) {
  constexpr double kWidth = 0.3, kPeak = 5.0, kSharpness = 10.0;
  Candidates& c = *candidates_;
  const std::vector<double> own = c.probabilities();
  const double target = std::clamp(
      2.0 * static_cast<double>(params_.adaptive_target) - adaptive_sum_ / adaptive_weight_, 0.0, 1.0);
  for (size_t i = 0; i < own.size(); ++i) {
    const double far = std::abs(own[i] - target) / kWidth;
    c.set(i, static_cast<float>(kPeak - kSharpness * far * far / (1.0 + far)));
  }
  const size_t at = c.draw(uniform);
  adaptive_sum_ = own[at] + static_cast<double>(params_.adaptive_decay) * adaptive_sum_;
  adaptive_weight_ = 1.0 + static_cast<double>(params_.adaptive_decay) * adaptive_weight_;
  return at;
}

int32_t Sampler::draw(std::span<const float> row, float highest, int64_t position) {
  const double uniform = this->uniform(position, 0);
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
  if (params_.top_p < 1.0f)
    cut = logits::nucleus(row, highest, static_cast<double>(params_.top_p), kFilterSlack);
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
int32_t Sampler::draw_all(std::span<const float> row, float highest, const logits::Cut& cut,
                          double uniform) const {
  const auto scale = static_cast<float>(std::min(1.0 / static_cast<double>(params_.temperature),
                                                 static_cast<double>(std::numeric_limits<float>::max())));
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
  const size_t block =
      std::min(static_cast<size_t>(std::upper_bound(blocks.begin(), blocks.end(), aim) - blocks.begin()),
               blocks.size() - 1);
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
