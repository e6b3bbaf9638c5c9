#include "sample/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "sample/dry.h"
#include "sample/philox.h"
#include "sample/sampler.h"

namespace mlxcel {
namespace {

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> row;
  for (double p : probabilities) row.push_back(static_cast<float>(std::log(p)));
  return row;
}

std::vector<float> random_row(size_t size, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> row(size);
  for (float& v : row) v = normal(rng);
  return row;
}

std::vector<double> softmax(const std::vector<float>& row) {
  std::vector<double> p;
  double sum = 0;
  for (float v : row) p.push_back(std::exp(static_cast<double>(v))), sum += p.back();
  for (double& v : p) v /= sum;
  return p;
}

std::set<int32_t> ids(const Candidates& c) {
  std::set<int32_t> out;
  for (size_t i = 0; i < c.size(); ++i) out.insert(c[i].token);
  return out;
}

template <class Act>
std::set<int32_t> kept(const std::vector<float>& row, Act&& act) {
  Candidates c;
  c.start(row);
  act(c);
  return ids(c);
}

TEST(Chain, TopNSigmaKeepsWithinDeviationsOfTheHighest) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto row = random_row(200, seed);
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / 200;
    double variance = 0;
    for (float v : row) variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean) / 200;
    const double floor =
        static_cast<double>(*std::max_element(row.begin(), row.end())) - 1.5 * std::sqrt(variance);
    std::set<int32_t> want;
    for (size_t i = 0; i < row.size(); ++i)
      if (static_cast<double>(row[i]) >= floor) want.insert(static_cast<int32_t>(i));
    EXPECT_EQ(kept(row, [](Candidates& c) { c.top_n_sigma(1.5f); }), want);
  }
  EXPECT_EQ(kept({1.0f, 2.0f}, [](Candidates& c) { c.top_n_sigma(0.0f); }).size(), 2u);
}

TEST(Chain, TypicalKeepsWhatIsNearestToTheEntropy) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto row = random_row(100, seed);
    const auto p = softmax(row);
    double entropy = 0;
    for (double v : p) entropy -= v * std::log(v);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(p[a]) - entropy) < std::abs(-std::log(p[b]) - entropy);
    });
    std::set<int32_t> want;
    double sum = 0;
    for (size_t i : order) {
      want.insert(static_cast<int32_t>(i));
      if ((sum += p[i]) > 0.4) break;
    }
    EXPECT_EQ(kept(row, [](Candidates& c) { c.typical(0.4f, 1); }), want);
  }
  EXPECT_EQ(kept(random_row(10, 1), [](Candidates& c) { c.typical(0.0f, 4); }).size(), 4u);
}

TEST(Chain, XtcRemovesAllButTheLeastOfTheTop) {
  const auto row = logs({0.4, 0.05, 0.3, 0.15, 0.1});
  const auto run = [&](float probability, float threshold, int keep, double uniform) {
    return kept(row, [&](Candidates& c) { c.xtc(probability, threshold, keep, uniform); });
  };
  EXPECT_EQ(run(1.0f, 0.12f, 1, 0.5), (std::set<int32_t>{1, 3, 4}));
  EXPECT_EQ(run(1.0f, 0.12f, 4, 0.5).size(), 5u);  // min_keep bounds it
  EXPECT_EQ(run(0.5f, 0.12f, 1, 0.49), (std::set<int32_t>{1, 3, 4}));
  EXPECT_EQ(run(0.5f, 0.12f, 1, 0.5).size(), 5u);  // the chance that was not taken
  EXPECT_EQ(run(1.0f, 0.35f, 1, 0.5).size(), 5u);  // one above: nothing to remove
  EXPECT_EQ(run(1.0f, 0.6f, 1, 0.5).size(), 5u);   // thresholds above a half are off
}

TEST(Chain, DynamicTemperatureFollowsTheEntropy) {
  const auto row = random_row(50, 3);
  const auto p = softmax(row);
  double entropy = 0;
  for (double v : p) entropy -= v * std::log(v);
  const double t = (1.0 - 0.6) + 1.2 * std::pow(entropy / std::log(50.0), 0.7);
  Candidates c;
  c.start(row);
  c.dynamic_temperature(1.0f, 0.6f, 0.7f);
  std::vector<float> scaled;
  for (float v : row) scaled.push_back(static_cast<float>(static_cast<double>(v) / t));
  const auto want = softmax(scaled);
  for (size_t i = 0; i < c.size(); ++i)
    EXPECT_NEAR(c.probabilities()[i], want[static_cast<size_t>(c[i].token)], 1e-6);
}

TEST(Chain, MirostatEstimatesK) {
  const auto row = random_row(500, 4);
  auto p = softmax(row);
  std::sort(p.rbegin(), p.rend());
  double above = 0, below = 0;
  for (size_t i = 0; i + 1 < 100; ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    above += t * std::log(p[i] / p[i + 1]);
    below += t * t;
  }
  const double s = above / below, e = s - 1, mu = 6.0;
  const double k = std::pow(e * std::pow(2, mu) / (1 - std::pow(500.0, -e)), 1 / s);
  EXPECT_NEAR(static_cast<double>(kept(row, [](Candidates& c) { c.mirostat(6.0f, 500); }).size()),
              std::floor(k), 1.0);

  const size_t bits =
      static_cast<size_t>(std::count_if(p.begin(), p.end(), [](double v) { return -std::log2(v) <= 7.0; }));
  EXPECT_EQ(kept(row, [](Candidates& c) { c.mirostat2(7.0f); }).size(), bits);
  EXPECT_EQ(kept(row, [](Candidates& c) { c.mirostat2(0.01f); }).size(), 1u);
  EXPECT_EQ(kept(std::vector<float>(9, 1.0f), [](Candidates& c) { c.mirostat(5.0f, 9); }).size(), 1u);
}

TEST(Chain, MirostatHoldsTheSurpriseDown) {
  const auto row = random_row(2000, 8);
  const auto p = softmax(row);
  const auto surprise = [&](int version, float tau) {
    SamplingParams params;
    params.temperature = 1.0f;
    params.mirostat = version;
    params.mirostat_tau = tau;
    params.seed = 3;
    Sampler sampler(params, 2000);
    double sum = 0;
    for (int i = 0; i < 600; ++i) {
      const int32_t token = sampler.sample(row, {}, i).token;
      if (i >= 200) sum -= std::log2(p[static_cast<size_t>(token)]) / 400;
    }
    return sum;
  };
  const double free = surprise(0, 0.0f);
  for (int version : {1, 2}) {
    EXPECT_LT(surprise(version, 1.0f), surprise(version, 4.0f)) << version;
    EXPECT_LT(surprise(version, 4.0f), free) << version;
  }
}

TEST(Chain, AdaptivePDrawsNearItsTarget) {
  const auto row = logs({0.55, 0.2, 0.15, 0.05, 0.05});
  SamplingParams params;
  params.temperature = 1.0f;
  params.samplers.push_back(Stage::adaptive_p);
  params.adaptive_target = 0.2f;
  params.seed = 5;
  std::map<int32_t, int> counts;
  Sampler sampler(params, 5);
  for (int i = 0; i < 4000; ++i) ++counts[sampler.sample(row, {}, i).token];
  EXPECT_GT(counts[1] + counts[2], 2200);
  double mean = 0;
  const double p[] = {0.55, 0.2, 0.15, 0.05, 0.05};
  for (const auto& [token, count] : counts) mean += p[token] * count / 4000;
  EXPECT_NEAR(mean, 0.2, 0.05);        // the running mean is what it steers by
  params.samplers = default_stages();  // not named: it does not act
  params.seed = 5;
  Sampler plain(params, 5);
  int first = 0;
  for (int i = 0; i < 4000; ++i) first += plain.sample(row, {}, i).token == 0 ? 1 : 0;
  EXPECT_NEAR(first / 4000.0, 0.55, 0.03);
}

// DRY by its definition: for every earlier place, how long its end matches the text's end.
std::map<int32_t, double> dry_by_definition(const std::vector<int32_t>& text, int allowed, double multiplier,
                                            double base, size_t limit) {
  std::map<int32_t, double> out;
  for (size_t end = 1; end < text.size(); ++end) {
    size_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    length = std::min(length, limit);
    if (length < static_cast<size_t>(allowed)) continue;
    double& penalty = out[text[end]];
    penalty = std::max(penalty, multiplier * std::pow(base, static_cast<double>(length) - allowed));
  }
  return out;
}

TEST(Dry, IsItsDefinition) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> text(1 + rng() % 40);
    for (auto& t : text) t = static_cast<int32_t>(rng() % 3);
    SamplingParams params;
    params.dry_multiplier = 0.8f;
    params.dry_allowed_length = 1 + static_cast<int>(rng() % 3);
    params.dry_penalty_last_n = -1;
    params.dry_breakers.clear();
    Dry dry(params, nullptr);
    std::map<int32_t, double> found;
    for (const auto& [token, penalty] : dry.penalties(text)) found[token] = static_cast<double>(penalty);
    const auto want = dry_by_definition(text, params.dry_allowed_length, 0.8, 1.75, text.size());
    if (static_cast<int>(text.size()) <= params.dry_allowed_length) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    ASSERT_EQ(found.size(), want.size());
    for (const auto& [token, penalty] : want) EXPECT_NEAR(found[token] / penalty, 1.0, 1e-4);
  }
}

TEST(Dry, BreakersCutEvenAcrossTokens) {
  const auto bytes = std::make_shared<const TokenBytes>(TokenBytes{"a", "b", "x-", "-y", "\n"});
  SamplingParams params;
  params.dry_multiplier = 1.0f;
  params.dry_allowed_length = 2;
  params.dry_penalty_last_n = -1;
  params.dry_breakers = {"--"};
  const auto found = [&](std::vector<int32_t> text) {
    Dry dry(params, bytes);
    dry.penalties(std::span(text).first(text.size() / 2));  // in two parts, as it comes in generation
    return dry.penalties(text).size();
  };
  EXPECT_EQ(found({0, 1, 0, 4, 0, 1, 0}), 1u);     // "\n" is no breaker here
  EXPECT_EQ(found({0, 1, 0, 2, 3, 0, 1, 0}), 1u);  // three tokens behind it
  EXPECT_EQ(found({0, 1, 0, 0, 1, 2, 3, 0}), 0u);  // one token behind "x-" "-y"
  params.dry_breakers = {"-z"};
  EXPECT_EQ(found({0, 1, 2, 0, 1, 2}), 1u);
  params.dry_breakers = {"a"};
  EXPECT_EQ(found({1, 4, 0, 1, 4}), 1u);
  EXPECT_EQ(found({1, 0, 4, 1, 0}), 0u);
  EXPECT_THROW(Dry(params, nullptr), Error);
}

TEST(Dry, HoldsARepetitionBack) {
  SamplingParams params;
  params.dry_multiplier = 5.0f;
  params.dry_breakers.clear();
  const std::vector<int32_t> history = {0, 1, 2, 0, 1};
  const std::vector<float> row = {0.0f, 0.0f, 2.0f, 1.0f};
  EXPECT_EQ(Sampler(params, 4).sample(row, history, 5).token, 3);
  params.dry_penalty_last_n = 0;
  EXPECT_EQ(Sampler(params, 4).sample(row, history, 5).token, 2);
  params.dry_penalty_last_n = -1;
  params.samplers = {Stage::temperature};
  EXPECT_EQ(Sampler(params, 4).sample(row, history, 5).token, 2);
}

TEST(Chain, OrderIsTheOneAskedFor) {
  // After top_k 2: {0.5, 0.3} -> 0.625, 0.375. top_p 0.6 then keeps one; top_p first keeps two.
  const auto row = logs({0.5, 0.3, 0.1, 0.1});
  const auto seen = [&](std::vector<Stage> order) {
    SamplingParams params;
    params.temperature = 1.0f;
    params.top_k = 2;
    params.top_p = 0.6f;
    params.samplers = std::move(order);
    params.seed = 1;
    Sampler sampler(params, 4);
    std::set<int32_t> out;
    for (int i = 0; i < 500; ++i) out.insert(sampler.sample(row, {}, i).token);
    return out;
  };
  EXPECT_EQ(seen({Stage::top_k, Stage::top_p}), (std::set<int32_t>{0}));
  EXPECT_EQ(seen({Stage::top_p, Stage::top_k}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(seen({Stage::top_p}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(seen({}), (std::set<int32_t>{0, 1, 2, 3}));  // a name left out does not run
}

TEST(Chain, FastAndGeneralPathsKeepTheSame) {
  const auto row = random_row(300, 6);
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.min_p = 0.02f;
  params.seed = 1;
  const auto seen = [&] {
    Sampler sampler(params, 300);
    std::map<int32_t, int> out;
    for (int i = 0; i < 20000; ++i) ++out[sampler.sample(row, {}, i).token];
    return out;
  };
  const auto fast = seen();
  params.xtc_probability = 1e-30f;  // the general path, with nothing more to do
  const auto general = seen();
  EXPECT_EQ(fast.size(), general.size());
  for (const auto& [token, count] : fast) {
    ASSERT_TRUE(general.contains(token));
    EXPECT_NEAR(count, general.at(token), 5 * std::sqrt(count + 25.0));
  }
}

TEST(Chain, PostSamplingProbsAreThoseDrawnFrom) {
  const auto row = logs({0.5, 0.3, 0.1, 0.1});
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 2;
  params.logprobs = 3;
  params.post_sampling_probs = true;
  Draw draw = Sampler(params, 4).sample(row, {}, 0);
  ASSERT_EQ(draw.top.size(), 2u);
  EXPECT_NEAR(std::exp(draw.top[0].logprob), 0.625, 1e-5);
  EXPECT_NEAR(std::exp(draw.top[1].logprob), 0.375, 1e-5);
  EXPECT_NEAR(draw.logprob, draw.token == 0 ? draw.top[0].logprob : draw.top[1].logprob, 1e-6);
  params.temperature = 0.0f;
  draw = Sampler(params, 4).sample(row, {}, 0);
  ASSERT_EQ(draw.top.size(), 1u);
  EXPECT_EQ(draw.token, 0);
  EXPECT_EQ(draw.logprob, 0.0f);
}

TEST(Chain, MasksComeBeforeEverythingAndLogprobsStay) {
  const auto row = random_row(70, 2);
  std::vector<uint32_t> mask(3, 0);
  mask[1] = 1u << 3;  // token 35
  mask[2] = 1u << 1;  // token 65
  SamplingParams params;
  params.logprobs = 1;
  const int32_t best = row[35] > row[65] ? 35 : 65;
  const Draw draw = Sampler(params, 70).sample(row, {}, 0, mask);
  EXPECT_EQ(draw.token, best);
  EXPECT_NE(draw.top[0].token, best);  // the model's own
  params.temperature = 1.0f;
  params.seed = 2;
  params.logit_bias = {{1, 100.0f}};
  Sampler sampler(params, 70);
  std::set<int32_t> seen;
  for (int i = 0; i < 300; ++i) seen.insert(sampler.sample(row, {}, i, mask).token);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int32_t t) { return t == 35 || t == 65; }));
  EXPECT_THROW(sampler.sample(row, {}, 0, std::span(mask).first(2)), Error);
  const std::vector<uint32_t> nothing(3, 0);
  EXPECT_THROW(sampler.sample(row, {}, 0, nothing), Error);
}

TEST(Chain, LanguageBiasYieldsToTheGrammar) {
  const auto row = logs({0.6, 0.3, 0.1});
  SamplingParams params;
  params.language_bias = std::make_shared<const TokenBiases>(
      TokenBiases{{0, -std::numeric_limits<float>::infinity()}, {2, 1.5f}});
  EXPECT_EQ(Sampler(params, 3).sample(row, {}, 0).token, 2);
  const std::vector<uint32_t> only_first = {1u};
  EXPECT_EQ(Sampler(params, 3).sample(row, {}, 0, only_first).token, 0);
}

TEST(Stages, NamesAndLetters) {
  const std::vector<std::string> names = {"top_k", "dry", "temperature"};
  EXPECT_EQ(parse_stages(names), (std::vector<Stage>{Stage::top_k, Stage::dry, Stage::temperature}));
  EXPECT_EQ(parse_stage_letters("edskypmxta").size(), 10u);
  EXPECT_EQ(parse_stage_letters("kt"), (std::vector<Stage>{Stage::top_k, Stage::temperature}));
  EXPECT_THROW(parse_stages(std::vector<std::string>{"top_k", "top_k"}), Error);
  EXPECT_THROW(parse_stages(std::vector<std::string>{"topk"}), Error);
  EXPECT_THROW(parse_stage_letters("kq"), Error);
  for (Stage stage : default_stages()) EXPECT_STRNE(to_string(stage), "");
}

TEST(Stages, NewFieldsAreValidated) {
  const auto refused = [](auto change) {
    SamplingParams params;
    change(params);
    try {
      validate(params, 10);
    } catch (const Error& error) {
      return error.param();
    }
    return std::string();
  };
  EXPECT_EQ(refused([](auto& p) { p.dynatemp_range = -1; }), "dynatemp_range");
  EXPECT_EQ(refused([](auto& p) { p.typical_p = 1.5f; }), "typical_p");
  EXPECT_EQ(refused([](auto& p) { p.xtc_probability = 2; }), "xtc_probability");
  EXPECT_EQ(refused([](auto& p) { p.dry_base = 0.5f; }), "dry_base");
  EXPECT_EQ(refused([](auto& p) { p.dry_multiplier = -1; }), "dry_multiplier");
  EXPECT_EQ(refused([](auto& p) { p.dry_breakers = {""}; }), "dry_sequence_breakers");
  EXPECT_EQ(refused([](auto& p) { p.dry_allowed_length = -1; }), "dry_allowed_length");
  EXPECT_EQ(refused([](auto& p) { p.mirostat = 3; }), "mirostat");
  EXPECT_EQ(refused([](auto& p) { p.adaptive_decay = 1.0f; }), "adaptive_decay");
  EXPECT_EQ(refused([](auto& p) { p.samplers = {Stage::dry, Stage::dry}; }), "samplers");
  EXPECT_EQ(
      refused([](auto& p) { p.language_bias = std::make_shared<TokenBiases>(TokenBiases{{10, 1.0f}}); }),
      "lang-bias");
}

}  // namespace
}  // namespace mlxcel
