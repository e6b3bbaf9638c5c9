#include "text/language_bias.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::map<int32_t, float> biases(const LanguageBias& bias, const std::vector<std::string>& tokens) {
  const auto list = token_biases(bias, tokens);
  return {list.begin(), list.end()};
}

TEST(LanguageBias, TokensByTheirScripts) {
  const std::vector<std::string> tokens = {
      "hello", " \xED\x95\x9C",    "\xE4\xB8\xAD", "\xE3\x81\x82", "12.,!",
      "",      "\xD0\xBF\xD1\x80", "x\xE4\xB8\xAD"};
  EXPECT_EQ(biases(parse_language_bias("ko=-inf"), tokens), (std::map<int32_t, float>{{1, kNever}}));
  EXPECT_EQ(biases(parse_language_bias("ja=-2"), tokens),
            (std::map<int32_t, float>{{2, -2}, {3, -2}, {7, -2}}));
  EXPECT_EQ(biases(parse_language_bias("cyrillic=1.5"), tokens), (std::map<int32_t, float>{{6, 1.5f}}));
  // The first language listed wins what several share.
  EXPECT_EQ(biases(parse_language_bias("zh=3,ja=-2"), tokens),
            (std::map<int32_t, float>{{2, 3}, {3, -2}, {7, 3}}));
  EXPECT_EQ(biases(parse_language_bias("en=1,zh=3"), tokens).at(7), 1);
}

TEST(LanguageBias, FragmentsOnlyWhenStrictAndSure) {
  // EA B0 can only begin Hangul; EA alone may be other scripts; B0 is the rest of anything; E4 begins Han
  // (and more).
  const std::vector<std::string> tokens = {"\xEA\xB0", "\xEA", "\xB0", "\xE5", "\xEB\x80"};
  LanguageBias bias = parse_language_bias("ko=-inf,han=-1");
  EXPECT_TRUE(biases(bias, tokens).empty());
  bias.strict = true;
  EXPECT_EQ(biases(bias, tokens), (std::map<int32_t, float>{{0, kNever}, {3, -1}, {4, kNever}}));
}

TEST(LanguageBias, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "ko", "=1", "ko=", "ko=inf", "ko=nan", "ko=1x", "xx=1", "k=1", "ko=1,ko=2",
                           "klingon=1", "ko=1,,ja=2"})
    EXPECT_THROW(parse_language_bias(text), Error) << text;
}

}  // namespace
}  // namespace mlxcel
