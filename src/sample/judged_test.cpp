// Drafts judged by their odds: whatever a drafter proposes, what is drawn follows the sampler's own
// distribution; and of what the two have in common nothing is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "sample/sampler.h"

namespace mlxcel {
namespace {

constexpr int kVocab = 8, kDraws = 20000;

const std::vector<float> kTarget = {2.0f, 1.5f, 0.2f, -1.0f, 0.9f, -3.0f, 1.4f, 0.0f};
const std::vector<float> kDrafter = {0.1f, 2.2f, 1.0f, 0.5f, -2.0f, 1.9f, 0.4f, -0.5f};

/// Shares of the tokens that come without drafts, and with them; how many drafts stood.
struct Shares {
  std::vector<double> plain = std::vector<double>(kVocab), drafted = std::vector<double>(kVocab);
  double stood = 0.0, in_common = 0.0;
};

Shares shares(SamplingParams params, const std::vector<float>& drafter, TokenMask mask = {}) {
  params.seed = 11;
  const std::vector<int32_t> history = {1, 1, 4};
  Sampler plain(params, kVocab);
  params.seed = 12;
  Sampler judge(params, kVocab);
  EXPECT_TRUE(judge.judges());
  Shares out;
  std::vector<float> odds;
  for (int64_t i = 0; i < kDraws; ++i) {
    out.plain[static_cast<size_t>(plain.sample(kTarget, history, i, mask).token)] += 1.0 / kDraws;
    const Proposal proposal = judge.propose(drafter, i);
    odds = proposal.odds;
    const int32_t token = judge.sample(kTarget, history, i, mask, &proposal).token;
    out.drafted[static_cast<size_t>(token)] += 1.0 / kDraws;
    out.stood += token == proposal.token ? 1.0 / kDraws : 0.0;
  }
  for (size_t t = 0; t < kVocab; ++t) out.in_common += std::min(out.plain[t], static_cast<double>(odds[t]));
  return out;
}

void expect_the_same(const Shares& s, const char* what, bool one_distribution = true) {
  // Two samples of 20,000: a share's standard deviation is at most 0.005 between them.
  for (size_t t = 0; t < kVocab; ++t) EXPECT_NEAR(s.drafted[t], s.plain[t], 0.02) << what << ", token " << t;
  if (one_distribution) {
    EXPECT_NEAR(s.stood, s.in_common, 0.02) << what;
  }
}

TEST(JudgedDrafts, FollowTheSamplersOwnDistribution) {
  SamplingParams plain;
  plain.temperature = 1.0f;
  SamplingParams cold = plain, filtered = plain, chain = plain;
  cold.temperature = 0.5f;
  filtered.top_k = 5;
  filtered.top_p = 0.9f;
  filtered.min_p = 0.05f;
  filtered.logit_bias = {{6, 1.5f}};
  filtered.banned = {0};
  chain.repeat_penalty = 1.3f;
  chain.typical_p = 0.9f;
  chain.dynatemp_range = 0.3f;
  expect_the_same(shares(plain, kDrafter), "plain");
  expect_the_same(shares(cold, kDrafter), "cold");
  const Shares kept = shares(filtered, kDrafter);
  expect_the_same(kept, "filtered");
  EXPECT_EQ(kept.drafted[0], 0.0) << "it is banned";
  expect_the_same(shares(chain, kDrafter), "chain");
  chain.xtc_probability = 0.5f;  // every second draw is from another one
  expect_the_same(shares(chain, kDrafter), "chain with XTC", false);
  const std::vector<uint32_t> mask = {0b10110101u};
  const Shares allowed = shares(plain, kDrafter, mask);
  expect_the_same(allowed, "masked");
  for (const size_t t : {1u, 3u, 6u}) EXPECT_EQ(allowed.drafted[t], 0.0) << t;
  // A drafter that knows more tokens, or fewer.
  std::vector<float> longer = kDrafter, shorter = {0.3f, 1.0f, 2.0f};
  longer.insert(longer.end(), {9.0f, 9.0f});
  expect_the_same(shares(plain, longer), "longer");
  expect_the_same(shares(plain, shorter), "shorter");
}

TEST(JudgedDrafts, OfTheSameDistributionAllStand) {
  SamplingParams params;
  params.temperature = 0.9f;
  params.seed = 3;
  Sampler sampler(params, kVocab);
  for (int64_t i = 0; i < 2000; ++i) {
    const Proposal proposal = sampler.propose(kTarget, i);
    EXPECT_EQ(sampler.sample(kTarget, {}, i, {}, &proposal).token, proposal.token) << i;
  }
}

TEST(JudgedDrafts, GoWithDrawsThatAreRandomAndLearnNothing) {
  SamplingParams greedy, learning, adaptive, shown;
  learning.temperature = adaptive.temperature = shown.temperature = 0.8f;
  learning.mirostat = 2;
  adaptive.samplers.push_back(Stage::adaptive_p);
  adaptive.adaptive_target = 0.4f;
  shown.post_sampling_probs = true;
  for (const SamplingParams& params : {greedy, learning, adaptive, shown}) {
    EXPECT_FALSE(Sampler(params, kVocab).judges());
  }
  // Greedy draws take the best whatever was drafted.
  Sampler sampler(greedy, kVocab);
  const Proposal proposal{3, std::vector<float>(kVocab, 0.125f)};
  EXPECT_EQ(sampler.sample(kTarget, {}, 0, {}, &proposal).token, 0);
}

TEST(JudgedDrafts, OddsOfAnotherVocabularyAreAFault) {
  SamplingParams params;
  params.temperature = 1.0f;
  Sampler sampler(params, kVocab);
  const Proposal few{1, std::vector<float>(3, 0.3f)}, outside{kVocab, std::vector<float>(kVocab, 0.125f)};
  EXPECT_THROW(sampler.sample(kTarget, {}, 0, {}, &few), Error);
  EXPECT_THROW(sampler.sample(kTarget, {}, 0, {}, &outside), Error);
  const std::vector<float> broken(kVocab, std::nanf(""));
  Sampler again(params, kVocab);
  const Proposal nothing = again.propose(broken, 0);
  for (const float odds : nothing.odds) EXPECT_FALSE(odds > 0.0f);
}

}  // namespace
}  // namespace mlxcel
