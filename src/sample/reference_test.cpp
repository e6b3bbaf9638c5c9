// The chain against its definition in another language (testdata/reference.json, written by
// tools/golden/sampling.py): what every stage leaves, with which probabilities, and which token is drawn.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "sample/sampler.h"

namespace mlxcel {
namespace {

using Json = nlohmann::json;

SamplingParams params_of(const Json& p) {
  SamplingParams out;
  if (p.contains("samplers")) out.samplers = parse_stages(p.at("samplers").get<std::vector<std::string>>());
  out.temperature = p.at("temperature");
  out.dynatemp_range = p.value("dynatemp_range", out.dynatemp_range);
  out.dynatemp_exponent = p.value("dynatemp_exponent", out.dynatemp_exponent);
  out.top_k = p.value("top_k", out.top_k);
  out.top_p = p.value("top_p", out.top_p);
  out.min_p = p.value("min_p", out.min_p);
  out.typical_p = p.value("typical_p", out.typical_p);
  out.top_n_sigma = p.value("top_n_sigma", out.top_n_sigma);
  out.xtc_probability = p.value("xtc_probability", out.xtc_probability);
  out.xtc_threshold = p.value("xtc_threshold", out.xtc_threshold);
  out.repeat_penalty = p.value("repeat_penalty", out.repeat_penalty);
  out.frequency_penalty = p.value("frequency_penalty", out.frequency_penalty);
  out.presence_penalty = p.value("presence_penalty", out.presence_penalty);
  out.repeat_last_n = p.value("repeat_last_n", out.repeat_last_n);
  out.dry_multiplier = p.value("dry_multiplier", out.dry_multiplier);
  out.dry_base = p.value("dry_base", out.dry_base);
  out.dry_allowed_length = p.value("dry_allowed_length", out.dry_allowed_length);
  out.dry_penalty_last_n = p.value("dry_penalty_last_n", out.dry_penalty_last_n);
  out.dry_breakers = p.value("dry_sequence_breakers", std::vector<std::string>{});
  out.mirostat = p.value("mirostat", out.mirostat);
  out.mirostat_tau = p.value("mirostat_tau", out.mirostat_tau);
  out.mirostat_eta = p.value("mirostat_eta", out.mirostat_eta);
  out.adaptive_target = p.value("adaptive_target", out.adaptive_target);
  out.adaptive_decay = p.value("adaptive_decay", out.adaptive_decay);
  out.min_keep = p.value("min_keep", out.min_keep);
  return out;
}

TEST(Reference, EveryStageLeavesWhatItsDefinitionLeaves) {
  std::ifstream file(MLXCEL_SOURCE_DIR "/src/sample/testdata/reference.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases.size(), 20u);
  for (const Json& one : cases) {
    const auto name = one.at("name").get<std::string>();
    SamplingParams params = params_of(one.at("params"));
    params.seed = one.at("seed").get<uint32_t>();
    const int vocab = static_cast<int>(one.at("steps").at(0).at("logits").size());
    validate(params, vocab);
    auto bytes = std::make_shared<TokenBytes>();
    for (int i = 0; i < vocab; ++i) bytes->push_back(std::string(1, static_cast<char>('A' + i)));
    SamplingParams shown = params;
    shown.post_sampling_probs = true;
    shown.logprobs = vocab;
    Sampler all(shown, vocab, 0, bytes);
    Sampler plain(params, vocab, 0, bytes);  // perhaps by a shorter way
    auto history = one.at("history").get<std::vector<int32_t>>();
    for (size_t step = 0; step < one.at("steps").size(); ++step) {
      const Json& want = one.at("steps").at(step);
      const auto logits = want.at("logits").get<std::vector<float>>();
      const auto position = static_cast<int64_t>(history.size());
      const Draw got = all.sample(logits, history, position);
      const Json& left = want.at("left");
      ASSERT_EQ(got.top.size(), left.size()) << name << ", step " << step;
      for (size_t i = 0; i < left.size(); ++i) {
        EXPECT_EQ(got.top[i].token, left[i][0].get<int>()) << name << ", step " << step << ", place " << i;
        EXPECT_NEAR(got.top[i].logprob, left[i][1].get<float>(), 2e-4f) << name << ", step " << step;
      }
      EXPECT_EQ(got.token, want.at("token").get<int>()) << name << ", step " << step;
      const int32_t drawn = plain.sample(logits, history, position).token;
      const bool kept =
          std::any_of(left.begin(), left.end(), [&](const Json& e) { return e[0].get<int>() == drawn; });
      EXPECT_TRUE(kept) << name << ", step " << step;
      history.push_back(want.at("token").get<int32_t>());
    }
  }
}

}  // namespace
}  // namespace mlxcel
