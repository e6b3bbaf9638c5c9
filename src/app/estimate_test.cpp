// The memory preflight's keys and values.
#include "app/estimate.h"

#include <gtest/gtest.h>

namespace mlxcel::app {
namespace {

constexpr std::uintmax_t kHeads = 2, kDim = 64, kSlots = 8, kCoded = 4;  // but for two at either end

ModelPlan plan() {
  ModelPlan plan;
  plan.info.model_type = "fake";
  plan.info.hidden = 128;
  plan.info.layers = static_cast<int>(kSlots);
  plan.info.vocab_size = 100;
  plan.info.checkpoint_dtype = mx::float16;
  for (std::uintmax_t i = 0; i < kSlots; ++i)
    plan.layout.add_kv({.kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim});
  return plan;
}

std::uintmax_t kv(const char* mode, std::uintmax_t tokens, std::uintmax_t batch = 1) {
  const Config config = Config::parse("{}", "config.json");
  return estimate_memory(plan(), config, mode, tokens, batch, 2048).kv;
}

TEST(Estimate, CodesTakeLessAndTokensComeInSteps) {
  constexpr std::uintmax_t kToken = kSlots * 2 * kHeads * kDim * 2;
  EXPECT_EQ(kv("fp16", 1024), 1024 * kToken);
  EXPECT_EQ(kv("fp16", 1), 256 * kToken);
  EXPECT_EQ(kv("fp16", 257, 3), 3 * 512 * kToken);
  EXPECT_LT(kv("turbo4", 1024), kv("turbo4-asym", 1024));
  EXPECT_LT(kv("turbo4-asym", 1024), kv("fp16", 1024));
}

TEST(Estimate, WhatIsHeldBesideTheModelCounts) {
  const Config config = Config::parse("{}", "config.json");
  const Estimate bare = estimate_memory(plan(), config, "fp16", 256, 1, 2048),
                 more = estimate_memory(plan(), config, "fp16", 256, 1, 2048, 1000000);
  EXPECT_EQ(more.beside, 1000000u);
  EXPECT_GE(more.total, bare.total + 1000000);
  EXPECT_NE(estimate_text(plan(), more, 256, 1).find("drafter, adapters"), std::string::npos);
  EXPECT_EQ(estimate_text(plan(), bare, 256, 1).find("drafter, adapters"), std::string::npos);
  EXPECT_EQ(bytes_beside({}, 256, 1), 0u);
  EXPECT_EQ(bytes_beside({.adapters = {{"/nonexistent", 1.0f}}}, 256, 1), 0u)
      << "what is not there is told at load";
}

// Near keys and their values lie in 16 bits beside the codes, however long the window is.
TEST(Estimate, RecentValuesCountBesideTheirCodes) {
  constexpr std::uintmax_t kRecent = kCoded * 256 * 2 * kHeads * kDim * 2;
  EXPECT_EQ(kv("turbo4-delegated", 4096) - kv("turbo4-asym", 4096), kRecent);
  EXPECT_EQ(kv("turbo4-delegated", 100) - kv("turbo4-asym", 100), kRecent);
  EXPECT_EQ(kv("turbo4-delegated", 4096, 5) - kv("turbo4-asym", 4096, 5), 5 * kRecent);
}

}  // namespace
}  // namespace mlxcel::app
