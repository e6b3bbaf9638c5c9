// Frequency tables against transformers' (LlamaConfig, head_dim 16, max_position_embeddings 512).
#include "nn/rope.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace mlxcel {
namespace {

Dims sixteen() {
  Dims d;
  d.hidden = 64;
  d.heads = d.kv_heads = 4;
  d.head_dim = 16;
  d.max_positions = 512;
  return d;
}

Rope rope_of(const std::string& keys, const RopeOptions& options = {}) {
  return Rope::from(Config::parse(keys, "config.json"), sixteen(), options);
}

void expect_table(const Rope& rope, const std::vector<float>& want, float scale) {
  ASSERT_EQ(rope.frequencies().size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(rope.frequencies()[i], want[i], 2e-7f * want[i]) << i;
  EXPECT_NEAR(rope.scale(), scale, 1e-6f);
}

const std::vector<float> kPlain = {1.0f,  0.31622776f,   0.1f,   0.031622776f,
                                   0.01f, 0.0031622776f, 0.001f, 0.00031622776f};

TEST(Rope, is_plain_for_every_way_of_saying_nothing) {
  for (const char* keys :
       {R"({})", R"({"rope_scaling": null})", R"({"rope_scaling": {}})", R"({"rope_theta": 10000.0})",
        R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})",
        R"({"rope_scaling": {"type": "default"}})", R"({"rope_parameters": null})"})
    expect_table(rope_of(keys), kPlain, 1.0f);
  expect_table(Rope::plain(16, 10000.0f), kPlain, 1.0f);
}

TEST(Rope, takes_the_base_from_rope_parameters_first) {
  const auto a =
      rope_of(R"({"rope_theta": 500.0, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})");
  expect_table(a, kPlain, 1.0f);
  // The last of the two blocks follows its values: parameters win over the older scaling.
  const auto b = rope_of(
      R"({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_theta": 10000.0}})");
  expect_table(b, kPlain, 1.0f);
}

TEST(Rope, linear) {
  for (const char* word : {"rope_type", "type"})
    expect_table(rope_of(fmt::format(R"({{"rope_scaling": {{"{}": "linear", "factor": 2.5}}}})", word)),
                 {0.40000001f, 0.1264911f, 0.039999999f, 0.012649111f, 0.0039999997f, 0.0012649111f,
                  0.00040000002f, 0.00012649111f},
                 1.0f);
}

TEST(Rope, llama3) {
  expect_table(rope_of(
                   R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 64}})"),
               {1.0f, 0.24438459f, 0.013042256f, 0.0039528473f, 0.00125f, 0.00039528473f, 0.00012500001f,
                3.9528473e-05f},
               1.0f);
}

TEST(Rope, yarn) {
  expect_table(rope_of(
                   R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
              "original_max_position_embeddings": 128}})"),
               {1.0f, 0.23717082f, 0.049999997f, 0.0079056947f, 0.0024999999f, 0.00079056947f, 0.00025f,
                7.9056947e-05f},
               1.138629436f);
  expect_table(rope_of(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                           "original_max_position_embeddings": 128, "truncate": false, "mscale": 1.2,
                           "mscale_all_dim": 0.4,
                           "beta_fast": 16, "beta_slow": 2}})"),
               {1.0f, 0.21246868f, 0.025664398f, 0.0079056947f, 0.0024999999f, 0.00079056947f, 0.00025f,
                7.9056947e-05f},
               1.105076851f);
  EXPECT_FLOAT_EQ(
      rope_of(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.25}})").scale(),
      1.25f);
}

TEST(Rope, longrope_with_one_list) {
  const char* text =
      R"({{"rope_scaling": {{"rope_type": "longrope", "short_factor": [1, 1, 1.5, 2, 3, 4, 5, 6],
                         "long_factor": [1, 1, 1.5, 2, 3, 4, 5, {}],
                         "original_max_position_embeddings": 128}}}})";
  expect_table(
      rope_of(fmt::format(fmt::runtime(text), 6)),
      {1.0f, 0.31622776f, 0.06666667f, 0.015811389f, 0.0033333334f, 0.00079056947f, 0.0002f, 5.2704629e-05f},
      1.133893419f);
  EXPECT_EQ(rope_of(fmt::format(fmt::runtime(text), 6)).limit(), 0);
  const auto two = rope_of(fmt::format(fmt::runtime(text), 7));
  EXPECT_EQ(two.limit(), 128);
  EXPECT_FALSE(two.grows());
}

/// q [tokens, 1, 16] of ones, rotated in a step of rows with these prompts, each from position 0.
std::vector<std::vector<float>> rotated(const Rope& rope, const std::vector<int>& prompts) {
  Step step;
  int tokens = 0;
  for (const int count : prompts) {
    step.add(nullptr, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::last);
    tokens += count;
  }
  step.seal();
  array y = mx::contiguous(rope(mx::ones({tokens, 1, 16}, mx::float32), step));
  y.eval();
  std::vector<std::vector<float>> rows;
  for (int t = 0; t < tokens; ++t)
    rows.emplace_back(y.data<float>() + t * 16, y.data<float>() + (t + 1) * 16);
  return rows;
}

TEST(Rope, a_row_keeps_the_table_of_its_prompt) {
  const auto rope = rope_of(
      R"({"original_max_position_embeddings": 6,
          "rope_scaling": {"rope_type": "longrope", "factor": 1.0, "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                           "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]}})");
  const auto plain = rotated(Rope::plain(16, 10000.0f), {7});
  const auto mixed = rotated(rope, {6, 7, 2});
  EXPECT_EQ(mixed[5], plain[5]);      // a prompt of 6: the short factors
  EXPECT_EQ(mixed[6 + 4], plain[2]);  // of 7: half as fast
  EXPECT_EQ(mixed[6 + 6], plain[3]);
  EXPECT_EQ(mixed[6 + 7 + 1], plain[1]);  // its neighbour is not touched
  EXPECT_EQ(rotated(rope, {7})[4], mixed[6 + 4]);
}

TEST(Rope, dynamic_grows_with_the_prompt) {
  const auto rope = rope_of(R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  EXPECT_EQ(rope.limit(), 512);
  EXPECT_TRUE(rope.grows());
  expect_table(rope, kPlain, 1.0f);
  const auto longer = rotated(rope, {1024});
  // theta * (2 * 1024 / 512 - 1)^(16 / 14)
  const auto want = rotated(Rope::plain(16, 10000.0f * std::pow(3.0f, 16.0f / 14.0f)), {1024});
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(longer[1000][i], want[1000][i], 1e-3f) << i;
  EXPECT_EQ(rotated(rope, {512})[500], rotated(Rope::plain(16, 10000.0f), {512})[500]);
}

TEST(Rope, alpha_stretches_the_base_where_a_family_says_so) {
  const char* keys = R"({"rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}})";
  const auto rope = rope_of(keys, {.ntk_alpha = true});
  EXPECT_EQ(rope.limit(), 0);
  expect_table(rope, Rope::plain(16, static_cast<float>(10000.0 * std::pow(50.0, 16.0 / 14.0))).frequencies(),
               1.0f);
  EXPECT_EQ(rope_of(keys).limit(), 512);  // elsewhere nobody reads alpha
}

TEST(Rope, turns_backwards_and_under_other_keys) {
  const auto back = rope_of("{}", {.backwards = true});
  for (size_t i = 0; i < kPlain.size(); ++i) EXPECT_FLOAT_EQ(back.frequencies()[i], -kPlain[i]);
  const auto other = rope_of(R"({"rotary_emb_base": 10000, "rotary_pct": 0.5})",
                             {.theta = 7.0f, .theta_key = "rotary_emb_base", .part_key = "rotary_pct"});
  expect_table(other, Rope::plain(8, 10000.0f).frequencies(), 1.0f);
  EXPECT_EQ(rope_of("{}", {.part = 0.25f}).frequencies().size(), 2u);
}

TEST(Rope, rotates_a_part_of_the_head) {
  EXPECT_EQ(rope_of(R"({"partial_rotary_factor": 0.5})").frequencies().size(), 4u);
  EXPECT_EQ(rope_of(R"({"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}})")
                .frequencies()
                .size(),
            2u);
}

TEST(Rope, reads_the_block_of_a_layer_type) {
  const char* keys =
      R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
                                             "sliding_attention": {"rope_type": "default",
                                             "rope_theta": 10000.0}}})";
  expect_table(rope_of(keys, {.layer_type = "sliding_attention"}), kPlain, 1.0f);
  EXPECT_FLOAT_EQ(rope_of(keys, {.layer_type = "full_attention"}).frequencies()[0], 0.5f);
  EXPECT_THROW((void)rope_of(keys), Error);  // a family with one rotation
}

TEST(Rope, refuses_what_it_cannot_mean) {
  const auto kind_of = [](const std::string& keys) {
    try {
      (void)rope_of(keys);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind_of(R"({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}})"), ErrorKind::unsupported);
  EXPECT_EQ(kind_of(R"({"rope_scaling": {"rope_type": "dynamic"}})"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"rope_scaling": {"rope_type": "linear"}})"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"rope_scaling": {"rope_type": "linear", "factor": 0.0}})"),
            ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"rope_scaling": {"rope_type": "linear", "factor": -2.0}})"),
            ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"rope_theta": 0.0})"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"rope_theta": "big"})"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"partial_rotary_factor": 1.5})"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(R"({"partial_rotary_factor": 0.01})"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of(
                R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
              "high_freq_factor": 1}})"),
            ErrorKind::bad_checkpoint);
  EXPECT_EQ(
      kind_of(
          R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [1, 2]}})"),
      ErrorKind::bad_checkpoint);
}

}  // namespace
}  // namespace mlxcel
