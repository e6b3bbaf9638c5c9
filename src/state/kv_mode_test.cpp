// KV modes by name, and what layers make of them.
#include "state/kv_mode.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mlxcel {
namespace {

using kernels::PageType;

template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing thrown";
  return {ErrorKind::internal, ""};
}

StateLayout layers(int count, int key_dim = 64, int value_dim = 64) {
  StateLayout layout;
  for (int i = 0; i < count; ++i) layout.add_kv({.kv_heads = 2, .key_dim = key_dim, .value_dim = value_dim});
  return layout;
}

KvPlan plan(const StateLayout& layout, const KvModeOptions& options) {
  return plan_kv(layout, options, mx::float16, static_cast<int>(layout.kv().size()), "fake");
}

TEST(KvMode, NamesOfEveryMode) {
  EXPECT_EQ(parse_kv_mode("fp16"), KvMode::fp16);
  EXPECT_EQ(parse_kv_mode("float16"), KvMode::fp16);
  EXPECT_EQ(parse_kv_mode("i8"), KvMode::int8);
  EXPECT_EQ(parse_kv_mode("turbo4"), KvMode::turbo4);
  EXPECT_EQ(parse_kv_mode("turbo4-sym"), KvMode::turbo4);
  EXPECT_EQ(parse_kv_mode("fp16+turbo4"), KvMode::turbo4_asym);
  EXPECT_EQ(parse_kv_mode("fp16+turbo4-delegated"), KvMode::turbo4_delegated);
  EXPECT_EQ(parse_kv_mode("turbo3"), KvMode::turbo3_asym);
  for (const KvMode mode : {KvMode::fp16, KvMode::f32, KvMode::int8, KvMode::turbo4, KvMode::turbo4_asym,
                            KvMode::turbo4_delegated, KvMode::turbo3_asym})
    EXPECT_EQ(parse_kv_mode(to_string(mode)), mode);
  for (const char* name : {"", "turbo9", "INT8", "fp16 ", "turbo4-delegated "}) {
    const Error error = error_of([&] { parse_kv_mode(name); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request) << name;
    EXPECT_EQ(error.param(), "kv-cache-mode") << name;
  }
}

TEST(KvMode, TypesOfKeysAndValues) {
  EXPECT_EQ(kv_mode_of_types("f16", "f16"), KvMode::fp16);
  EXPECT_EQ(kv_mode_of_types("fp16", "float16"), KvMode::fp16);
  EXPECT_EQ(kv_mode_of_types("q8_0", "int8"), KvMode::int8);
  EXPECT_EQ(kv_mode_of_types("q4_0", "q4_1"), KvMode::turbo4);
  EXPECT_EQ(kv_mode_of_types("f16", "q4_0"), KvMode::turbo4_asym);
  EXPECT_EQ(kv_mode_of_types("f16", "turbo4-asym"), KvMode::turbo4_asym);
  EXPECT_EQ(kv_mode_of_types("f16", "turbo3"), KvMode::turbo3_asym);
  EXPECT_EQ(kv_mode_of_types("fp16", "turbo4-delegated"), KvMode::turbo4_delegated);
  EXPECT_EQ(error_of([] { kv_mode_of_types("turbo4", "turbo4-delegated"); }).param(), "cache-type-v");
  EXPECT_EQ(error_of([] { kv_mode_of_types("q5_1", "f16"); }).param(), "cache-type-k");
  EXPECT_NE(std::string(error_of([] { kv_mode_of_types("q5_1", "f16"); }).what()).find("turbo4"),
            std::string::npos);
  for (const auto& [k, v] :
       {std::pair{"int8", "f16"}, std::pair{"f16", "int8"}, std::pair{"turbo4", "turbo3"},
        std::pair{"turbo4", "f16"}, std::pair{"f16", "iq4_nl"}})
    EXPECT_EQ(error_of([&, k = k, v = v] { kv_mode_of_types(k, v); }).param(), "cache-type-v")
        << k << " " << v;
}

TEST(KvMode, BoundariesAndTheLastLayer) {
  const KvFormat dense{PageType::f16, PageType::f16};
  const auto ten = layers(10);
  const KvPlan int8 = plan(ten, {.mode = KvMode::int8});
  EXPECT_EQ(int8.applied, 9);
  EXPECT_EQ(int8.label, "int8: applied to 9 of 10 layers");
  EXPECT_EQ(int8.formats[0], (KvFormat{PageType::i8, PageType::i8}));
  EXPECT_EQ(int8.formats[9], dense);
  EXPECT_EQ(plan(ten, {.mode = KvMode::int8, .skip_last_layer = false}).applied, 10);

  const KvPlan asym = plan(ten, {.mode = KvMode::turbo4_asym});
  EXPECT_EQ(asym.applied, 6);
  for (const size_t at : {0u, 1u, 8u, 9u}) EXPECT_EQ(asym.formats[at], dense) << at;
  EXPECT_EQ(asym.formats[2], (KvFormat{PageType::f16, PageType::t4}));
  const KvPlan sym = plan(ten, {.mode = KvMode::turbo4});
  EXPECT_EQ(sym.applied, 9);
  EXPECT_EQ(sym.formats[1], (KvFormat{PageType::t4, PageType::f16}));
  EXPECT_EQ(sym.formats[5], (KvFormat{PageType::t4, PageType::t4}));
  EXPECT_EQ(sym.formats[9], dense);
  EXPECT_EQ(plan(ten, {.mode = KvMode::turbo3_asym, .boundary_values = 0, .skip_last_layer = false}).applied,
            10);
  EXPECT_EQ(plan(ten, {}).label, "f16: applied to 10 of 10 layers");

  const Error none = error_of([&] { plan(layers(4), {.mode = KvMode::turbo4_asym}); });
  EXPECT_EQ(none.param(), "kv-cache-mode");
  EXPECT_NE(std::string(none.what()).find("turbo-boundary-v"), std::string::npos);
  EXPECT_EQ(error_of([&] { plan(ten, {.mode = KvMode::turbo4, .boundary_values = -1}); }).param(),
            "turbo-boundary-v");
}

// H31: what a family cannot take is said at start-up, with what it can.
TEST(KvMode, WhatCannotBeIsSaid) {
  const Error odd = error_of([] { plan(layers(8, 80, 80), {.mode = KvMode::turbo4}); });
  EXPECT_EQ(odd.param(), "kv-cache-mode");
  EXPECT_NE(std::string(odd.what()).find("80"), std::string::npos);
  EXPECT_NE(std::string(odd.what()).find("int8"), std::string::npos);
  EXPECT_EQ(plan(layers(8, 80, 80), {.mode = KvMode::int8}).applied, 7);
  // Values alone decide where keys stay as they are; the others of a mixed model keep 16 bits.
  EXPECT_EQ(plan(layers(8, 80, 64), {.mode = KvMode::turbo4_asym}).applied, 4);
  StateLayout mixed = layers(6);
  mixed.add_kv({.kv_heads = 1, .key_dim = 96, .value_dim = 96, .window = 32});
  mixed.add_kv({.kv_heads = 1, .key_dim = 64, .value_dim = 64, .window = 32});
  const KvPlan some = plan(mixed, {.mode = KvMode::turbo4, .boundary_values = 0});
  EXPECT_EQ(some.applied, 6);
  EXPECT_EQ(some.label, "turbo4: applied to 6 of 8 layers");
  EXPECT_EQ(error_of([] { plan(StateLayout(), {.mode = KvMode::int8}); }).param(), "kv-cache-mode");
  EXPECT_EQ(plan(StateLayout(), {}).label, "none: no layer keeps keys and values");

  StateLayout latent;
  for (int i = 0; i < 4; ++i) latent.add_kv({.kv_heads = 1, .key_dim = 160, .latent = 128});
  for (const KvMode mode : {KvMode::turbo4_asym, KvMode::turbo4_delegated, KvMode::turbo3_asym}) {
    const std::string what = error_of([&] { plan(latent, {.mode = mode}); }).what();
    EXPECT_NE(what.find("int8"), std::string::npos) << what;
    EXPECT_NE(what.find("turbo4"), std::string::npos) << what;
  }
  EXPECT_EQ(plan(latent, {.mode = KvMode::turbo4, .boundary_values = 0}).applied, 3);
  EXPECT_EQ(plan(latent, {.mode = KvMode::int8}).applied, 3);
}

TEST(KvMode, RecentValuesStayWhereThereAreOlderOnes) {
  const KvModeOptions delegated{
      .mode = KvMode::turbo4_delegated, .boundary_values = 0, .skip_last_layer = false};
  const KvFormat both{PageType::f16, PageType::t4}, plain{PageType::f16, PageType::f16};
  StateLayout mixed = layers(1);
  mixed.add_kv({.kv_heads = 2, .key_dim = 64, .value_dim = 64, .window = kRecentTokens});
  mixed.add_kv({.kv_heads = 2, .key_dim = 64, .value_dim = 64, .window = kRecentTokens + 1});
  mixed.add_kv({.kv_heads = 2, .key_dim = 64, .value_dim = 65});
  EXPECT_EQ(plan(mixed, delegated).formats, (std::vector<KvFormat>{both, plain, both, plain}));
  EXPECT_EQ(plan(mixed, delegated).recent, (std::vector<int>{kRecentTokens, 0, kRecentTokens, 0}));
  EXPECT_TRUE(plan(mixed, {.mode = KvMode::turbo4_asym, .boundary_values = 0}).recent.empty());
  EXPECT_EQ(plan(mixed, delegated).label, "turbo4-delegated: applied to 2 of 4 layers");
  EXPECT_EQ(plan(layers(10), {.mode = KvMode::turbo4_delegated}).applied, 6);
  StateLayout near;
  near.add_kv({.kv_heads = 2, .key_dim = 64, .value_dim = 64, .window = 32});
  EXPECT_NE(std::string(error_of([&] { plan(near, delegated); }).what()).find("128"), std::string::npos);
}

TEST(KvMode, PagesShrink) {
  const auto ten = layers(10);
  const auto bytes = [&](KvMode mode) {
    return ten.kv_bytes_per_token(
        plan(ten, {.mode = mode, .boundary_values = 0, .skip_last_layer = false}).formats);
  };
  EXPECT_EQ(bytes(KvMode::fp16), 10u * 2 * 2 * 64 * 2);
  EXPECT_EQ(bytes(KvMode::fp16), ten.kv_bytes_per_token(mx::float16));
  EXPECT_EQ(bytes(KvMode::int8), 10u * 2 * (2 * 64 + 8));
  EXPECT_EQ(bytes(KvMode::turbo4), 10u * 2 * (2 * 32 + 8));
  EXPECT_EQ(bytes(KvMode::turbo4_asym), 10u * 2 * (128 + 32 + 4));
  EXPECT_EQ(bytes(KvMode::turbo3_asym), 10u * 2 * (128 + 24 + 4));
  EXPECT_EQ(bytes(KvMode::turbo4_delegated), bytes(KvMode::turbo4_asym));  // recent ones beside them
}

}  // namespace
}  // namespace mlxcel
