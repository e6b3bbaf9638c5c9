#include "engine/loop/pace.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

TEST(Pace, IsSteeredByMixedSteps) {
  Pace pace(0, 100.0);
  EXPECT_EQ(pace.budget(), 16);
  pace.observe(1, 1.0, false);  // a lone decode says nothing of prompts
  EXPECT_EQ(pace.budget(), 16);
  pace.observe(512, 512.0, false);  // prompts alone tell a start, half of what they would make of the gap
  EXPECT_EQ(pace.budget(), 40);
  // A step costs 20 ms and 0.5 ms a token: 120 tokens take the 80 ms that are aimed at.
  for (int i = 0; i < 40; ++i) pace.observe(pace.budget(), 20.0 + 0.5 * pace.budget(), true);
  EXPECT_NEAR(pace.budget(), 120, 3);
  pace.observe(20, 5.0, true);  // far from full: no reason for more
  EXPECT_NEAR(pace.budget(), 120, 3);
  pace.observe(pace.budget(), 160.0, true);
  EXPECT_NEAR(pace.budget(), 60, 3);
  pace.observe(pace.budget(), 1e6, true);
  EXPECT_NEAR(pace.budget(), 30, 3);
  for (int i = 0; i < 9; ++i) pace.observe(pace.budget(), 1e6, true);
  EXPECT_EQ(pace.budget(), 16);
  for (int i = 0; i < 60; ++i) pace.observe(pace.budget(), 0.01, true);
  EXPECT_EQ(pace.budget(), 4096);
  Pace fixed(77, 100.0);
  fixed.observe(512, 1e6, true);
  EXPECT_EQ(fixed.budget(), 77);
}

}  // namespace
}  // namespace mlxcel
