#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "sample/logits.h"
#include "sample/philox.h"

namespace mlxcel {
namespace {

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> row;
  for (double p : probabilities) row.push_back(static_cast<float>(std::log(p)));
  return row;
}

std::vector<float> random_row(size_t size, unsigned seed, float spread = 4.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> row(size);
  for (float& v : row) v = normal(rng);
  return row;
}

// How often each token comes in `draws` positions.
std::map<int32_t, int> tally(SamplingParams params, const std::vector<float>& row, int draws,
                             const std::vector<int32_t>& history = {}) {
  if (!params.seed) params.seed = 7;
  Sampler sampler(params, static_cast<int>(row.size()));
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.sample(row, history, i).token];
  return counts;
}

double chi_square(const std::map<int32_t, int>& counts, const std::vector<double>& expected, int draws) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto found = counts.find(static_cast<int32_t>(i));
    const double seen = found == counts.end() ? 0.0 : found->second;
    if (expected[i] == 0.0) {
      EXPECT_EQ(seen, 0.0) << "token " << i << " was filtered";
      continue;
    }
    const double want = expected[i] * draws;
    sum += (seen - want) * (seen - want) / want;
  }
  return sum;
}

std::string failing_param(const SamplingParams& params, int vocab = 10) {
  try {
    validate(params, vocab);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_NE(std::string(error.what()).find(error.param()), std::string::npos) << error.what();
    return error.param();
  }
  return "";
}

TEST(Philox, MatchesThePublishedVectors) {
  // Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Logits, PeakTakesTheLowestOfEqualIds) {
  for (size_t size : {1u, 15u, 16u, 17u, 2047u, 2048u, 2049u, 5000u}) {
    std::vector<float> row(size, -1.0f);
    for (size_t at : {size_t{0}, size / 3, size / 2, size - 1}) {
      std::vector<float> one = row;
      one[at] = 3.0f;
      one[size - 1] = 3.0f;
      const auto peak = logits::peak(one);
      EXPECT_EQ(peak.token, static_cast<int32_t>(at)) << size;
      EXPECT_EQ(peak.value, 3.0f);
      EXPECT_TRUE(peak.finite);
    }
  }
}

TEST(Logits, PeakSeesEveryNonFiniteValue) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()})
    for (size_t at : {0u, 15u, 16u, 2048u, 4999u}) {
      auto row = random_row(5000, 1);
      row[at] = bad;
      EXPECT_FALSE(logits::peak(row).finite) << bad << " at " << at;
    }
}

TEST(Logits, SumOfWeightsIsThatOfDoubles) {
  const auto row = random_row(49152, 2, 6.0f);
  const float highest = *std::max_element(row.begin(), row.end());
  double expected = 0;
  for (float v : row) expected += std::exp(static_cast<double>(v) - highest);
  EXPECT_NEAR(logits::sum_weights(row, highest) / expected, 1.0, 2e-7);
  EXPECT_EQ(logits::weight(highest, highest, 1.0f), 1.0f);
  EXPECT_EQ(logits::weight(-200.0f, 0.0f, 1.0f), 0.0f);
  EXPECT_EQ(logits::weight(-std::numeric_limits<float>::infinity(), 0.0f, 1.0f), 0.0f);
  for (float x = 0.0f; x > -86.0f; x -= 0.37f)
    EXPECT_NEAR(logits::weight(x, 0.0f, 1.0f) / std::exp(static_cast<double>(x)), 1.0, 3e-7) << x;
}

TEST(Logits, SelectTopIsAStableSort) {
  auto row = random_row(6000, 3);
  for (size_t i = 0; i < row.size(); i += 3) row[i] = std::round(row[i]);  // many ties
  std::vector<TokenLogprob> all(row.size());
  for (size_t i = 0; i < row.size(); ++i) all[i] = {static_cast<int32_t>(i), row[i]};
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  std::vector<TokenLogprob> top;
  for (int count : {0, 1, 5, 64, 1000, 2048, 2049, 5999, 6000, 9000}) {
    logits::select_top(row, count, top);
    ASSERT_EQ(top.size(), std::min<size_t>(row.size(), static_cast<size_t>(count)));
    for (size_t i = 0; i < top.size(); ++i) ASSERT_EQ(top[i].token, all[i].token) << count << " at " << i;
  }
}

// The cut against a full sort, over shapes of distribution and shares.
TEST(Logits, NucleusIsThePrefixOfASort) {
  for (const float spread : {0.0f, 0.01f, 1.0f, 4.0f, 30.0f})
    for (const size_t size : {1u, 3u, 64u, 1000u, 5003u}) {
      auto row = random_row(size, 11, spread);
      for (size_t i = 0; i < row.size(); i += 4) row[i] = std::round(row[i]);  // ties
      const float highest = *std::max_element(row.begin(), row.end());
      std::vector<TokenLogprob> sorted;
      logits::select_top(row, static_cast<int>(size), sorted);
      double total = 0;
      for (const auto& entry : sorted) total += std::exp(static_cast<double>(entry.logprob) - highest);
      for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99, 0.9999}) {
        const auto cut = logits::nucleus(row, highest, share, 1e-6);
        size_t kept = 0;
        for (size_t i = 0; i < size; ++i) kept += cut.keeps(row[i], static_cast<int32_t>(i)) ? 1 : 0;
        ASSERT_GE(kept, 1u);
        double mass = 0, before = 0;
        for (size_t i = 0; i < kept; ++i) {
          before = mass;
          mass += std::exp(static_cast<double>(sorted[i].logprob) - highest);
          ASSERT_TRUE(cut.keeps(sorted[i].logprob, sorted[i].token));
        }
        EXPECT_GE(mass, (share - 3e-6) * total) << spread << " " << size << " " << share;
        if (kept > 1) {
          EXPECT_LT(before, (share + 1e-6) * total) << spread << " " << size << " " << share;
        }
      }
    }
}

TEST(Logits, AnyFromSeesTheTail) {
  for (size_t size : {1u, 15u, 16u, 17u, 100u}) {
    std::vector<float> row(size, 0.0f);
    EXPECT_FALSE(logits::any_from(row, 1.0f));
    row.back() = 1.0f;
    EXPECT_TRUE(logits::any_from(row, 1.0f));
  }
}

TEST(Sampler, GreedyIsTheHighestLogitLowestId) {
  std::vector<float> row = {0.5f, 2.0f, -1.0f, 2.0f};
  SamplingParams params;
  EXPECT_EQ(Sampler(params, 4).sample(row, {}, 0).token, 1);
  params.temperature = 1.0f;
  params.top_k = 1;
  params.min_keep = 3;
  EXPECT_EQ(Sampler(params, 4).sample(row, {}, 0).token, 1);
}

TEST(Sampler, DrawsTheDistribution) {
  // 99.9 % point of chi-square with 5 degrees of freedom: 20.5.
  const std::vector<double> p = {0.05, 0.3, 0.1, 0.25, 0.2, 0.1};
  SamplingParams params;
  params.temperature = 1.0f;
  EXPECT_LT(chi_square(tally(params, logs(p), 20000), p, 20000), 20.5);
  params.top_k = 6;
  EXPECT_LT(chi_square(tally(params, logs(p), 20000), p, 20000), 20.5);
  // Large enough for several blocks: mass in known places, the rest negligible.
  std::vector<float> row(3000, -60.0f);
  const std::vector<int> places = {0, 255, 256, 1700, 2900, 2999};
  for (size_t i = 0; i < places.size(); ++i) row[static_cast<size_t>(places[i])] = logs(p)[i];
  params.top_k = 0;
  const auto counts = tally(params, row, 20000);
  std::map<int32_t, int> folded;
  for (size_t i = 0; i < places.size(); ++i)
    if (const auto found = counts.find(places[i]); found != counts.end())
      folded[static_cast<int32_t>(i)] = found->second;
  EXPECT_LT(chi_square(folded, p, 20000), 20.5);
  EXPECT_EQ(counts.size(), 6u);
}

TEST(Sampler, TemperatureComesAfterTheFilters) {
  const std::vector<double> p = {0.6, 0.3, 0.1};
  SamplingParams params;
  params.temperature = 2.0f;
  const double z = std::sqrt(0.6) + std::sqrt(0.3) + std::sqrt(0.1);
  const std::vector<double> tempered = {std::sqrt(0.6) / z, std::sqrt(0.3) / z, std::sqrt(0.1) / z};
  EXPECT_LT(chi_square(tally(params, logs(p), 20000), tempered, 20000), 13.8);
  // Untempered, 0.6 + 0.3 reach 0.85; tempered they would not (0.81).
  params.top_p = 0.85f;
  const double z2 = std::sqrt(0.6) + std::sqrt(0.3);
  EXPECT_LT(chi_square(tally(params, logs(p), 20000), {std::sqrt(0.6) / z2, std::sqrt(0.3) / z2, 0.0}, 20000),
            10.8);
}

TEST(Sampler, FiltersKeepExactlyWhatTheyShould) {
  const std::vector<double> p = {0.1, 0.4, 0.2, 0.3};
  const auto kept = [&](auto change) {
    SamplingParams params;
    params.temperature = 1.0f;
    change(params);
    std::set<int32_t> seen;
    for (const auto& [token, count] : tally(params, logs(p), 4000)) seen.insert(token);
    return seen;
  };
  using Ids = std::set<int32_t>;
  EXPECT_EQ(kept([](auto& s) { s.top_k = 2; }), (Ids{1, 3}));
  EXPECT_EQ(kept([](auto& s) { s.top_k = 100; }), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept([](auto& s) { s.top_p = 0.0f; }), (Ids{1}));
  EXPECT_EQ(kept([](auto& s) { s.top_p = 0.4f; }), (Ids{1}));
  EXPECT_EQ(kept([](auto& s) { s.top_p = 0.41f; }), (Ids{1, 3}));
  EXPECT_EQ(kept([](auto& s) { s.top_p = 0.7f; }), (Ids{1, 3}));
  EXPECT_EQ(kept([](auto& s) { s.top_p = 0.95f; }), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept([](auto& s) { s.min_p = 0.5f; }), (Ids{1, 2, 3}));
  EXPECT_EQ(kept([](auto& s) { s.min_p = 0.6f; }), (Ids{1, 3}));
  EXPECT_EQ(kept([](auto& s) { s.min_p = 1.0f; }), (Ids{1}));
  // top_p sees what top_k left, renormalised: 0.4/0.7 = 0.571.
  EXPECT_EQ(kept([](auto& s) { s.top_k = 2, s.top_p = 0.55f; }), (Ids{1}));
  EXPECT_EQ(kept([](auto& s) { s.top_k = 2, s.top_p = 0.6f; }), (Ids{1, 3}));
  // min_keep bounds every filter.
  EXPECT_EQ(kept([](auto& s) { s.top_p = 0.0f, s.min_keep = 2; }), (Ids{1, 3}));
  EXPECT_EQ(kept([](auto& s) { s.top_k = 2, s.min_keep = 3; }), (Ids{1, 2, 3}));
  EXPECT_EQ(kept([](auto& s) { s.min_p = 1.0f, s.min_keep = 3; }), (Ids{1, 2, 3}));
}

TEST(Sampler, FlatNucleusOfThousands) {
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_p = 0.5f;
  const std::vector<float> row(5000, 1.0f);
  const auto counts = tally(params, row, 3000);
  EXPECT_LT(counts.rbegin()->first, 2500);  // ties to the lowest ids
  EXPECT_GT(counts.size(), 1500u);
}

TEST(Sampler, TinyTemperatureIsGreedyAndHugeIsFlat) {
  const auto row = random_row(500, 5);
  const int32_t best = logits::peak(row).token;
  SamplingParams params;
  for (float t : {1e-30f, 1e-45f}) {
    params.temperature = t;
    for (int k : {0, 5}) {
      params.top_k = k;
      EXPECT_EQ(tally(params, row, 50), (std::map<int32_t, int>{{best, 50}})) << t;
    }
  }
  params.temperature = 1e30f;
  params.top_k = 0;
  EXPECT_GT(tally(params, row, 500).size(), 250u);
}

TEST(Sampler, PenaltiesCountTheWindowPromptIncluded) {
  const std::vector<float> row = {2.0f, -2.0f, 1.0f, 0.5f};
  const auto after = [&](auto change, std::vector<int32_t> history) {
    SamplingParams params;
    params.logprobs = 4;
    change(params);
    Sampler sampler(params, 4);
    return sampler.sample(row, history, 0).token;
  };
  EXPECT_EQ(after([](auto& s) { s.repeat_penalty = 3.0f; }, {0}), 2);       // 2 / 3 < 1
  EXPECT_EQ(after([](auto& s) { s.repeat_penalty = 1.5f; }, {0, 0}), 0);    // once however often
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = 0.9f; }, {0, 0}), 0);  // 1.1
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = 1.1f; }, {0}), 2);
  EXPECT_EQ(after([](auto& s) { s.frequency_penalty = 0.6f; }, {0, 0}), 2);  // 0.8
  EXPECT_EQ(after([](auto& s) { s.frequency_penalty = 0.6f; }, {0}), 0);     // 1.4
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = 1.1f, s.repeat_last_n = 2; }, {0, 3, 3}), 0);
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = 1.1f, s.repeat_last_n = -1; }, {0, 3, 3}), 2);
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = 1.1f, s.repeat_last_n = 0; }, {0}), 0);
  // Negative logits are pushed down, not up; negative presence lifts.
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = -4.5f; }, {1}), 1);                           // 2.5
  EXPECT_EQ(after([](auto& s) { s.presence_penalty = -4.5f, s.repeat_penalty = 2.0f; }, {1}), 0);  // 0.5
}

TEST(Sampler, CountsAreClearedBetweenTokens) {
  SamplingParams params;
  params.frequency_penalty = 0.6f;
  Sampler sampler(params, 2);
  const std::vector<float> row = {1.0f, 0.0f};
  const std::vector<int32_t> history = {0};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sampler.sample(row, history, i).token, 0);
}

TEST(Sampler, BiasAndBansChangeTheChoiceNotTheLogprobs) {
  const std::vector<double> p = {0.5, 0.3, 0.2};
  SamplingParams params;
  params.logit_bias = {{2, 100.0f}};
  params.logprobs = 3;
  Draw draw = Sampler(params, 3).sample(logs(p), {}, 0);
  EXPECT_EQ(draw.token, 2);
  EXPECT_NEAR(draw.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(draw.top.size(), 3u);
  EXPECT_EQ(draw.top[0].token, 0);
  params.logit_bias.clear();
  params.banned = {0};
  draw = Sampler(params, 3).sample(logs(p), {}, 0);
  EXPECT_EQ(draw.token, 1);
  EXPECT_EQ(draw.top[0].token, 0);  // a banned token may show
  params.temperature = 1.0f;
  EXPECT_LT(chi_square(tally(params, logs(p), 20000), {0.0, 0.6, 0.4}, 20000), 10.8);
  params.top_p = 0.99f;
  EXPECT_LT(chi_square(tally(params, logs(p), 20000), {0.0, 0.6, 0.4}, 20000), 10.8);
}

TEST(Sampler, LogprobsAreLogSoftmax) {
  const auto row = random_row(49152, 9);
  double sum = 0;
  for (float v : row) sum += std::exp(static_cast<double>(v));
  SamplingParams params;
  params.logprobs = 5;
  const Draw draw = Sampler(params, 49152).sample(row, {}, 0);
  ASSERT_EQ(draw.top.size(), 5u);
  EXPECT_EQ(draw.top[0].token, draw.token);
  EXPECT_EQ(draw.top[0].logprob, draw.logprob);
  for (const auto& entry : draw.top)
    EXPECT_NEAR(entry.logprob, static_cast<double>(row[static_cast<size_t>(entry.token)]) - std::log(sum),
                2e-6);
  EXPECT_TRUE(std::is_sorted(draw.top.begin(), draw.top.end(),
                             [](const auto& a, const auto& b) { return a.logprob > b.logprob; }));
  const Draw scored = score(row, 17, 2);
  EXPECT_EQ(scored.token, 17);
  EXPECT_EQ(scored.top.size(), 2u);
  EXPECT_NEAR(scored.logprob, static_cast<double>(row[17]) - std::log(sum), 2e-6);
  params.logprobs = 0;
  EXPECT_TRUE(Sampler(params, 49152).sample(row, {}, 0).top.empty());
  params.logprobs = -1;
  EXPECT_EQ(Sampler(params, 49152).sample(row, {}, 0).logprob, 0.0f);
}

TEST(Sampler, ADrawDependsOnSeedChoiceAndPositionAlone) {
  const std::vector<float> row(64, 0.0f);
  SamplingParams params;
  params.temperature = 1.0f;
  params.seed = 42;
  const auto run = [&](int choice, bool backwards) {
    Sampler sampler(params, 64, choice);
    std::vector<int32_t> tokens(40);
    for (int i = 0; i < 40; ++i) {
      const int at = backwards ? 39 - i : i;
      tokens[static_cast<size_t>(at)] = sampler.sample(row, {}, at).token;
    }
    return tokens;
  };
  EXPECT_EQ(run(0, false), run(0, true));
  EXPECT_NE(run(0, false), run(1, false));
  const auto before = run(0, false);
  params.seed = 43;
  EXPECT_NE(run(0, false), before);
}

TEST(Sampler, AbsentAndAllOnesSeedsAreFresh) {
  SamplingParams params;
  params.temperature = 1.0f;
  std::set<uint32_t> seeds;
  for (int i = 0; i < 20; ++i) seeds.insert(Sampler(params, 64).seed());
  params.seed = 0xFFFFFFFFu;
  for (int i = 0; i < 20; ++i) seeds.insert(Sampler(params, 64).seed());
  EXPECT_GT(seeds.size(), 38u);
  EXPECT_FALSE(seeds.contains(0xFFFFFFFFu));
  params.seed = 0;  // zero is a value
  EXPECT_EQ(Sampler(params, 64).seed(), 0u);
}

TEST(Sampler, BrokenLogitsAreAnInternalError) {
  SamplingParams params;
  for (float temperature : {0.0f, 1.0f}) {
    params.temperature = temperature;
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> row = {0.0f, bad, 1.0f};
      try {
        Sampler(params, 3).sample(row, {}, 0);
        FAIL() << "accepted " << bad;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::internal);
        EXPECT_NE(std::string(error.what()).find("token 1"), std::string::npos) << error.what();
      }
      EXPECT_THROW(score(row, 0, 1), Error);
    }
  }
  const std::vector<float> row = {0.0f, 1.0f};
  EXPECT_THROW(Sampler(params, 3).sample(row, {}, 0), Error);  // a row of another width
  EXPECT_THROW(score(row, 2, 0), Error);
  EXPECT_THROW(score(row, -1, 0), Error);
  params.presence_penalty = 1.0f;
  const std::vector<int32_t> history = {7};
  EXPECT_THROW(Sampler(params, 2).sample(row, history, 0), Error);
}

TEST(Sampler, ValidationNamesTheField) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto with = [](auto change) {
    SamplingParams params;
    change(params);
    return failing_param(params);
  };
  EXPECT_EQ(with([](auto&) {}), "");
  for (float bad : {nan, inf, -0.1f}) {
    EXPECT_EQ(with([&](auto& s) { s.temperature = bad; }), "temperature");
    EXPECT_EQ(with([&](auto& s) { s.top_p = bad; }), "top_p");
    EXPECT_EQ(with([&](auto& s) { s.min_p = bad; }), "min_p");
    EXPECT_EQ(with([&](auto& s) { s.repeat_penalty = bad; }), "repeat_penalty");
  }
  for (float bad : {nan, inf, -inf, 101.0f}) {
    EXPECT_EQ(with([&](auto& s) { s.frequency_penalty = bad; }), "frequency_penalty");
    EXPECT_EQ(with([&](auto& s) { s.presence_penalty = bad; }), "presence_penalty");
    EXPECT_EQ(with([&](auto& s) { s.logit_bias = {{1, bad}}; }), "logit_bias");
  }
  EXPECT_EQ(with([](auto& s) { s.top_p = 1.1f; }), "top_p");
  EXPECT_EQ(with([](auto& s) { s.repeat_penalty = 0.0f; }), "repeat_penalty");
  EXPECT_EQ(with([](auto& s) { s.top_k = -1; }), "top_k");
  EXPECT_EQ(with([](auto& s) { s.repeat_last_n = -2; }), "repeat_last_n");
  EXPECT_EQ(with([](auto& s) { s.min_keep = -1; }), "min_keep");
  EXPECT_EQ(with([](auto& s) { s.logprobs = -2; }), "logprobs");
  EXPECT_EQ(with([](auto& s) { s.logprobs = 11; }), "logprobs");
  EXPECT_EQ(with([](auto& s) { s.banned = {10}; }), "banned");
  EXPECT_EQ(with([](auto& s) { s.banned = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; }), "banned");
  EXPECT_EQ(with([](auto& s) { s.banned = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; }), "");
  // The vocabulary's edge.
  for (int32_t bad : {10, -1, std::numeric_limits<int32_t>::max()})
    EXPECT_EQ(with([&](auto& s) { s.logit_bias = {{bad, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(with([](auto& s) { s.logit_bias = {{9, 100.0f}, {0, -100.0f}}; }), "");
}

}  // namespace
}  // namespace mlxcel
