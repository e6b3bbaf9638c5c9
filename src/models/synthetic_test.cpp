// Values worked out apart from this code; tools/golden has the same rules in Python.
#include "models/synthetic.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mlxcel {
namespace {

TEST(Synthetic, follows_from_names) {
  const auto norm = synthetic_values("model.norm.weight", {3});
  EXPECT_EQ(norm[0], 1.0f + 0.25f * -0.9026243686676025f);
  EXPECT_EQ(norm[1], 1.0f + 0.25f * -0.7243598699569702f);
  EXPECT_EQ(norm[2], 1.0f + 0.25f * -0.19588613510131836f);
  const auto matrix = synthetic_values("h.0.attn.c_attn.weight", {1, 3});
  EXPECT_EQ(matrix[0], 0.1584925651550293f);  // sqrt(3 / 3) = 1
  EXPECT_EQ(matrix[1], 0.19708657264709473f);
  EXPECT_EQ(matrix[2], 0.5217294692993164f);
}

TEST(Synthetic, scales_by_the_kind_of_tensor) {
  const auto span_of = [](const std::string& name, const Shape& shape) {
    float low = 1e9f, high = -1e9f;
    for (const float x : synthetic_values(name, shape)) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
    return std::pair(low, high);
  };
  const auto expect_span = [&](const std::string& name, const Shape& shape, float low, float high) {
    const auto [l, h] = span_of(name, shape);
    EXPECT_GE(l, low) << name;
    EXPECT_LE(h, high) << name;
    EXPECT_LT(l, low + 0.1f * (high - low)) << name;
    EXPECT_GT(h, high - 0.1f * (high - low)) << name;
  };
  expect_span("a.mixer.A_log", {400}, 0.0f, 1.0f);
  expect_span("a.mixer.dt_bias", {400}, -2.0f, 0.0f);
  expect_span("a.mixer.D", {400}, 0.5f, 1.5f);
  expect_span("a.q_proj.bias", {400}, -0.2f, 0.2f);
  expect_span("a.LayerNorm.beta", {400}, -0.2f, 0.2f);
  expect_span("a.embeddings.LayerNorm.weight", {400}, 0.75f, 1.25f);
  expect_span("model.embed_tokens.weight", {20, 20}, -0.5f, 0.5f);
  expect_span("wte.weight", {20, 20}, -0.5f, 0.5f);
  expect_span("a.q_proj.weight", {20, 75}, -0.2f, 0.2f);
}

TEST(Synthetic, lists_and_refuses) {
  EXPECT_THROW((void)synthetic_source({{"a", {1}}, {"a", {2}}}), Error);
  const auto source = synthetic_source({{"b", {2, 3}}, {"a", {4}}});
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(source->find("b")->bytes, 24u);
  EXPECT_FALSE(source->find("c"));
  EXPECT_THROW((void)source->load("c"), Error);
}

}  // namespace
}  // namespace mlxcel
