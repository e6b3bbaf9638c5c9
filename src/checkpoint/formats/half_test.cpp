#include "checkpoint/formats/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mlxcel {
namespace {

TEST(Half, EveryPatternReturns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = float_from_half(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(half_from_float(value), bits);
  }
  EXPECT_EQ(float_from_half(0x3c00), 1.0f);
  EXPECT_EQ(float_from_half(0x0001), 5.9604644775390625e-08f);
}

TEST(Half, ListsAgreeWithSingleValues) {
  std::vector<float> values;
  for (uint32_t i = 0; i < 1003; ++i)
    values.push_back((static_cast<float>(i) - 500.0f) * 37.7f / (1 + static_cast<float>(i % 91) * 900));
  std::vector<uint16_t> halves(values.size());
  EXPECT_TRUE(halves_from_floats(values.data(), halves.data(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(halves[i], half_from_float(values[i])) << i;
}

TEST(Half, TellsOverflowFromInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const size_t at : {0u, 7u, 16u}) {
    std::vector<float> values(17, 1.0f);
    std::vector<uint16_t> halves(17);
    values[at] = -infinity;
    EXPECT_TRUE(halves_from_floats(values.data(), halves.data(), 17));
    values[at] = 65519.0f;
    EXPECT_TRUE(halves_from_floats(values.data(), halves.data(), 17));
    EXPECT_EQ(halves[at], 0x7bff);
    values[at] = 65520.0f;
    EXPECT_FALSE(halves_from_floats(values.data(), halves.data(), 17));
    values[at] = std::nanf("");
    EXPECT_TRUE(halves_from_floats(values.data(), halves.data(), 17));
  }
}

}  // namespace
}  // namespace mlxcel
