// Settings of a running server: what can be read, changed, and what cannot.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/error.h"
#include "server/settings.h"

namespace mlxcel {
namespace {

const std::vector<Settings::Fixed> kFixed = {{"parallel", "4", "set at start-up"}};

class SettingsTest : public ::testing::Test {
 protected:
  ServiceOptions options_ = [] {
    ServiceOptions out;
    out.sampling.temperature = 0.5f;
    out.predict = 7;
    return out;
  }();
  Settings settings_{options_};

  nlohmann::json read() const { return nlohmann::json::parse(settings_.print(kFixed)); }
  nlohmann::json patch(const std::string& body, int status = 200) {
    const auto out = settings_.patch(body, kFixed);
    EXPECT_EQ(out.status, status) << body << out.json;
    return nlohmann::json::parse(out.json);
  }
};

TEST_F(SettingsTest, TellsWhatThereIsAndWhatIsInForce) {
  const auto all = read();
  EXPECT_EQ(all["schema_version"], 1);
  EXPECT_EQ(all["current"]["default_temperature"], 0.5);
  EXPECT_EQ(all["current"]["default_n_predict"], 7);
  EXPECT_EQ(all["current"]["parallel"], 4);
  EXPECT_TRUE(all["current"]["default_top_k"].is_null());
  EXPECT_LE(all["settings"].size(), 256u);
  for (const auto& each : all["settings"]) EXPECT_TRUE(all["current"].contains(each["key"])) << each;
}

TEST_F(SettingsTest, AValueIsChangedAtOnceAndWhatIsWrongIsListed) {
  const auto before = read()["fingerprint"];
  const auto out = patch(
      R"({"default_temperature": 0, "default_top_k": 3, "parallel": 9, "nonsense": 1, "default_top_p": 5})");
  EXPECT_EQ(out["applied"]["default_top_k"], 3);
  EXPECT_EQ(out["rejected"].size(), 3u);
  EXPECT_NE(out["fingerprint"], before);
  EXPECT_EQ(out["fingerprint"], read()["fingerprint"]);
  EXPECT_EQ(settings_.live()->sampling.temperature, 0.0f);
  EXPECT_EQ(settings_.live()->sampling.top_k, 3);
  patch(R"({"default_temperature": null})");
  EXPECT_FALSE(settings_.live()->sampling.temperature.has_value());
}

TEST_F(SettingsTest, NothingApplicableIs400AndChangesNothing) {
  const auto before = read()["fingerprint"];
  patch(R"({"parallel": 9})", 400);
  patch(R"({"default_n_predict": "many"})", 400);
  patch(R"({"decode_timeout": null})", 400);
  patch("{}");
  EXPECT_EQ(read()["fingerprint"], before);
  EXPECT_THROW(settings_.patch("[1]", kFixed), Error);
  EXPECT_THROW(settings_.patch(R"({"op": "odd", "values": {}})", kFixed), Error);
  EXPECT_THROW(settings_.patch(R"({"values": 1})", kFixed), Error);
}

TEST_F(SettingsTest, FingerprintsGuardAndReplaceGoesBackToTheStart) {
  const auto first = read()["fingerprint"].get<std::string>();
  patch(R"({"default_top_k": 3, "default_seed": 5})");
  try {
    settings_.patch(R"({"values": {"default_top_k": 4}, "if_fingerprint": ")" + first + "\"}", kFixed);
    FAIL() << "an old fingerprint was accepted";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.error().status, 409);
  }
  patch(R"({"op": "replace", "values": {"default_min_p": 0.25}})");
  EXPECT_FALSE(settings_.live()->sampling.top_k.has_value());
  EXPECT_EQ(settings_.live()->sampling.min_p, 0.25f);
  EXPECT_EQ(settings_.live()->sampling.temperature, 0.5f);
}

TEST_F(SettingsTest, WhatTheEngineIsTold) {
  options_.parallel = 4;
  options_.step_token_budget = 64;
  options_.language_bias = {{{"ko", -1.5f}}, true};
  Settings own(options_);
  const auto patch = [&](const std::string& body) {
    return nlohmann::json::parse(own.patch(body, kFixed).json);
  };
  auto now = nlohmann::json::parse(own.print(kFixed))["current"];
  EXPECT_EQ(now["step_token_budget"], 64);
  EXPECT_EQ(now["lang_bias"], "ko=-1.5");
  EXPECT_EQ(now["lang_bias_policy"], "strict");
  EXPECT_TRUE(now["max_denoising_steps"].is_null());
  for (const char* wrong :
       {R"({"step_token_budget": 3})", R"({"step_token_budget": "auto"})", R"({"max_concurrent_per_key": 2})",
        R"({"lang_bias": "nowhere=1"})", R"({"lang_bias": 5})", R"({"lang_bias_policy": null})",
        R"({"diffusion_threshold": 1.5})", R"({"diffusion_sampler": "best"})",
        R"({"diffusion_full_canvas": null})", R"({"max_denoising_steps": 0})"})
    EXPECT_EQ(patch(wrong)["rejected"].size(), 1u) << wrong;
  patch(R"({"step_token_budget": null, "lang_bias": "ja=-inf,han=2", "lang_bias_policy": "conservative",
           "max_denoising_steps": 4, "diffusion_sampler": "random", "diffusion_full_canvas": true})");
  const auto live = own.live();
  EXPECT_EQ(live->step_token_budget, 0);
  ASSERT_EQ(live->language_bias.languages.size(), 2u);
  EXPECT_EQ(live->language_bias.languages[1], std::pair(std::string("han"), 2.0f));
  EXPECT_FALSE(live->language_bias.strict);
  EXPECT_EQ(live->denoising.steps, 4);
  EXPECT_EQ(live->denoising.sampler, "random");
  EXPECT_TRUE(live->denoising.whole);
  options_.access.keys = {"k"};
  Settings keyed(options_);
  EXPECT_EQ(keyed.patch(R"({"max_concurrent_per_key": 2})", kFixed).status, 200);
  EXPECT_EQ(keyed.live()->max_per_key, 2);
}

TEST_F(SettingsTest, OneOfSeveralModelsHasWhatWasChangedOverItsOwn) {
  ServiceOptions options;
  options.sampling.temperature = 0.1f;
  options.predict = 50;
  options.parallel = 8;
  const Settings model(options);
  EXPECT_EQ(settings_.over(model.live()), model.live()) << "nothing was changed";
  patch(R"({"default_top_k": 3, "default_n_predict": 9, "step_token_budget": 6})");
  auto live = settings_.over(model.live());
  EXPECT_EQ(live->sampling.temperature, 0.1f);  // its own
  EXPECT_EQ(live->sampling.top_k, 3);
  EXPECT_EQ(live->predict, 9);
  EXPECT_EQ(live->step_token_budget, 0) << "six tokens hold no eight rows: it keeps its own";
  patch(R"({"op": "replace", "values": {"default_temperature": null}})");
  live = settings_.over(model.live());
  EXPECT_FALSE(live->sampling.temperature.has_value());
  EXPECT_EQ(live->predict, 50);
}

}  // namespace
}  // namespace mlxcel
