#include "checkpoint/adapter_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/formats/safetensors_writer.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;
using Tensors = std::vector<std::pair<std::string, array>>;

array counted(const Shape& shape, float first = 1.0f) {
  array data = allocated(shape, mx::float32);
  for (size_t i = 0; i < data.size(); ++i) data.data<float>()[i] = first + static_cast<float>(i);
  return data;
}

const char* kPeft = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "bias": "none"})";
const char* kMlx = R"({"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 10.0}})";
const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";

Tensors peft_pair(const std::string& module, int out, int in, int rank = 2) {
  return {{module + ".lora_A.weight", counted({rank, in})},
          {module + ".lora_B.weight", counted({out, rank}, 2.0f)}};
}

class AdapterFilesTest : public ::testing::Test {
 protected:
  AdapterFiles peft(const Tensors& tensors, const std::string& config = kPeft) {
    folder_.put("adapter_config.json", config);
    write_safetensors(folder_ / "adapter_model.safetensors", tensors);
    return AdapterFiles::read(folder_.path());
  }
  AdapterFiles mlx(const Tensors& tensors, const std::string& config = kMlx) {
    folder_.put("adapter_config.json", config);
    write_safetensors(folder_ / "adapters.safetensors", tensors);
    return AdapterFiles::read(folder_.path());
  }
  Folder folder_;
};

TEST_F(AdapterFilesTest, ReadsPeft) {
  const AdapterFiles files = peft(peft_pair(kQ, 3, 4));
  EXPECT_STREQ(files.format(), "PEFT");
  EXPECT_EQ(files.rank(), 2);
  const auto found = files.of("model.layers.0.self_attn.q_proj.weight", {3, 4});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->right, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(found->left, (std::vector<float>{8, 12, 16, 20, 24, 28}));  // times alpha / r = 4
  EXPECT_TRUE(files.unused().empty());
  EXPECT_FALSE(files.of("model.layers.1.self_attn.q_proj.weight", {3, 4}));
}

TEST_F(AdapterFilesTest, WrappersOfNamesMayDiffer) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight",
                           "model.language_model.layers.0.self_attn.q_proj.weight",
                           "language_model.model.layers.0.self_attn.q_proj.weight"})
    EXPECT_TRUE(peft(peft_pair(kQ, 3, 4)).of(name, {3, 4})) << name;
  EXPECT_TRUE(peft(peft_pair("base_model.model.transformer.h.0.attn.c_attn", 3, 4))
                  .of("h.0.attn.c_attn.weight", {3, 4}));
}

TEST_F(AdapterFilesTest, ReadsScalesByModule) {
  const auto scale = [&](const std::string& config, int rank = 2) {
    return peft(peft_pair(kQ, 3, 4, rank), config)
               .of("model.layers.0.self_attn.q_proj.weight", {3, 4})
               ->left[0] /
           2.0f;
  };
  EXPECT_FLOAT_EQ(scale(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "use_rslora": true})"),
                  8.0f / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(scale(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "alpha_pattern": {"q_proj": 3}})"),
                  1.5f);
  EXPECT_FLOAT_EQ(
      scale(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "rank_pattern": {"q_proj": 4}})", 4), 2.0f);
  EXPECT_FLOAT_EQ(scale(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "alpha_pattern": {"proj": 3}})"),
                  4.0f);
}

TEST_F(AdapterFilesTest, ReadsMlx) {
  const AdapterFiles files = mlx({{"model.layers.0.self_attn.q_proj.lora_a", counted({4, 2})},
                                  {"model.layers.0.self_attn.q_proj.lora_b", counted({2, 3})},
                                  {"model.layers.0.mlp.switch_mlp.up_proj.lora_a", counted({5, 2, 4})},
                                  {"model.layers.0.mlp.switch_mlp.up_proj.lora_b", counted({5, 3, 2})}});
  EXPECT_STREQ(files.format(), "MLX");
  const auto found = files.of("model.layers.0.self_attn.q_proj.weight", {3, 4});
  ASSERT_TRUE(found);
  // a [4, 2] = [[1, 2], [3, 4], …]; b [2, 3] = [[1, 2, 3], [4, 5, 6]]; product[o][i] = 10 * sum a[i][r]
  // b[r][o]
  const auto product = found->product();
  EXPECT_FLOAT_EQ(product[0], 10 * (1 * 1 + 2 * 4));
  EXPECT_FLOAT_EQ(product[1], 10 * (3 * 1 + 4 * 4));
  EXPECT_FLOAT_EQ(product[4], 10 * (1 * 2 + 2 * 5));
  const auto bank = files.of("model.layers.0.mlp.switch_mlp.up_proj.weight", {5, 3, 4});
  ASSERT_TRUE(bank);
  EXPECT_EQ(bank->count, 5);
}

TEST_F(AdapterFilesTest, PairsOfTurnedWeightsAreTurned) {
  const char* config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "fan_in_fan_out": true})";
  const auto found = peft(peft_pair("base_model.model.transformer.h.0.mlp.c_fc", 3, 4), config)
                         .of("h.0.mlp.c_fc.weight", {4, 3});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->shape(), (Shape{4, 3}));
}

TEST_F(AdapterFilesTest, WhatDoesNotFitIsNamed) {
  const auto bad = [&](const std::function<void()>& action, std::vector<std::string> parts) {
    expect_error(action, ErrorKind::bad_checkpoint, parts);
  };
  bad([&] { peft(peft_pair(kQ, 3, 4)).of("model.layers.0.self_attn.q_proj.weight", {3, 5}); },
      {"q_proj", "[3, 4]", "[3, 5]"});
  bad([&] { peft(peft_pair(kQ, 3, 4, 3)); }, {"q_proj.lora_A.weight", "[3, 4]", "rank 2"});
  auto half = peft_pair(kQ, 3, 4);
  half.pop_back();
  bad([&] { peft(half); }, {"not half of a LoRA pair", "q_proj.lora_A.weight"});
  auto stray = peft_pair(kQ, 3, 4);
  stray.emplace_back("base_model.model.lm_head.weight", counted({4, 4}));
  bad([&] { peft(stray); }, {"base_model.model.lm_head.weight"});
  stray.back() = {"base_model.model.lm_head.base_layer.weight", counted({4, 4})};
  ASSERT_EQ(peft(stray).copies().size(), 1u);  // the model decides whether it is its own
  EXPECT_EQ(peft(stray).copies()[0].weight, "lm_head.weight");
  stray.back() = {kQ + ".lora_magnitude_vector.weight", counted({3})};
  bad([&] { peft(stray); }, {"lora_magnitude_vector"});
  auto twice = peft_pair(kQ, 3, 4);
  for (auto& one : peft_pair("base_model.model.layers.0.self_attn.q_proj", 3, 4)) twice.push_back(one);
  bad([&] { peft(twice); }, {"under two names"});
  auto broken = peft_pair(kQ, 3, 4);
  broken[1].second.data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  bad([&] { peft(broken); }, {"lora_B", "not finite"});
  bad([&] { peft({{kQ + ".lora_A.weight", counted({2})}, {kQ + ".lora_B.weight", counted({2})}}); },
      {"do not fit"});
  bad([&] { mlx({{"a.lora_a", counted({4, 3})}, {"a.lora_b", counted({3, 4})}}); }, {"a.lora_a", "rank 2"});
}

TEST_F(AdapterFilesTest, RefusesOtherKindsByName) {
  const auto refused = [&](const std::string& config, std::vector<std::string> parts) {
    expect_error([&] { peft(peft_pair(kQ, 3, 4), config); }, ErrorKind::unsupported, parts);
  };
  const std::string head = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, )";
  refused(head + R"("use_dora": true})", {"DoRA"});
  refused(head + R"("bias": "all"})", {"bias"});
  refused(head + R"("modules_to_save": ["lm_head", "score"]})", {"modules_to_save", "lm_head, score"});
  refused(head + R"("init_lora_weights": "pissa"})", {"pissa"});
  refused(head + R"("rank_pattern": {"(a*)*b": 4}})", {"rank_pattern", "(a*)*b"});
  refused(R"({"peft_type": "IA3"})", {"IA3"});
  expect_error(
      [&] { mlx({}, R"({"fine_tune_type": "dora", "lora_parameters": {"rank": 2, "scale": 1.0}})"); },
      ErrorKind::unsupported, {"DoRA"});
  expect_error([&] { mlx({}, R"({"fine_tune_type": "full"})"); }, ErrorKind::unsupported, {"full"});
  expect_error([&] { peft(peft_pair(kQ, 3, 4), head + R"("r": 5000})"); }, ErrorKind::bad_checkpoint, {"r"});
  expect_error([&] { peft(peft_pair(kQ, 3, 4), R"({"peft_type": "LORA", "r": 0, "lora_alpha": 8})"); },
               ErrorKind::bad_checkpoint, {"r"});
  expect_error([&] { AdapterFiles::read(folder_ / "nowhere"); }, ErrorKind::not_found, {"nowhere"});
}

TEST_F(AdapterFilesTest, ReadsTables) {
  const std::string table = "base_model.model.model.embed_tokens";
  const AdapterFiles by_peft = peft({{table + ".lora_embedding_A", counted({2, 5})},
                                     {table + ".lora_embedding_B", counted({3, 2}, 10.0f)}});
  const auto found = by_peft.of("model.embed_tokens.weight", {5, 3});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  // Row i of the table gets A[:, i] B^T, times alpha / r = 4.
  EXPECT_EQ(found->product()[0], 4.0f * (1 * 10 + 6 * 11));
  EXPECT_EQ(found->product()[14], 4.0f * (5 * 14 + 10 * 15));
  EXPECT_FALSE(by_peft.heads_follow_tables());
  const AdapterFiles by_mlx = mlx({{"model.embed_tokens.lora_a", counted({5, 2})},
                                   {"model.embed_tokens.lora_b", counted({2, 3}, 10.0f)}});
  const auto turned = by_mlx.of("model.embed_tokens.weight", {5, 3});
  ASSERT_TRUE(turned);
  EXPECT_EQ(turned->product()[0], 10.0f * (1 * 10 + 2 * 13));
  EXPECT_TRUE(by_mlx.heads_follow_tables());
}

TEST_F(AdapterFilesTest, ReadsParametersOfExperts) {
  const std::string experts = "base_model.model.model.layers.0.mlp.experts";
  const std::string config =
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_parameters": ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"]})";
  // Three experts: gate_up_proj [3, 4, 5] is wrapped first, so it lies deeper.
  const Tensors tensors = {{experts + ".base_layer.lora_A.weight", counted({6, 5})},
                           {experts + ".base_layer.lora_B.weight", counted({4, 6})},
                           {experts + ".lora_A.weight", counted({6, 2})},
                           {experts + ".lora_B.weight", counted({5, 6})}};
  AdapterFiles files = peft(tensors, config);
  files.settle({});
  const auto both = files.of("model.layers.0.mlp.experts.gate_up_proj.weight", {3, 4, 5});
  ASSERT_TRUE(both);
  // Expert e: out o, rank k of B lies at o * 6 + k * 3 + e; A at (e * 2 + k) * 5.
  const auto b = [](int o, int k, int e) { return 1.0f + static_cast<float>(o * 6 + k * 3 + e); };
  const auto a = [](int e, int k, int i) { return 1.0f + static_cast<float>((e * 2 + k) * 5 + i); };
  const auto product = both->product();
  for (int e = 0; e < 3; ++e)
    for (int o = 0; o < 4; ++o)
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(product[static_cast<size_t>((e * 4 + o) * 5 + i)],
                  b(o, 0, e) * a(e, 0, i) + b(o, 1, e) * a(e, 1, i));
  // As the banks that were stacked from single experts.
  const auto gate = files.of_bank("model.layers.0.mlp.switch_mlp.gate_proj.weight", {3, 2, 5});
  const auto up = files.of_bank("model.layers.0.mlp.switch_mlp.up_proj.weight", {3, 2, 5});
  ASSERT_TRUE(gate && up);
  EXPECT_EQ(gate->product()[0], product[0]);
  EXPECT_EQ(up->product()[0], product[10]);
  EXPECT_TRUE(files.of_bank("model.layers.0.block_sparse_moe.switch_mlp.down_proj.weight", {3, 5, 2}));
  EXPECT_TRUE(files.unused().empty());
  AdapterFiles turned = peft(tensors, config);
  turned.settle({.heads = 0, .kv_heads = 0, .turned_experts = true});
  EXPECT_TRUE(turned.of("model.layers.0.mlp.experts.gate_up_proj.weight", {3, 5, 4}));
  // Which parameter a pair belongs to must be known, and the pair must divide.
  auto deep = tensors;
  deep[0].first = experts + ".base_layer.base_layer.lora_A.weight";
  deep[1].first = experts + ".base_layer.base_layer.lora_B.weight";
  expect_error([&] { peft(deep, config); }, ErrorKind::unsupported, {"target_parameters"});
  auto odd = tensors;
  odd[0].second = counted({5, 5});
  expect_error([&] { peft(odd, config); }, ErrorKind::bad_checkpoint, {"bank of experts"});
}

TEST_F(AdapterFilesTest, DigestTellsValuesApart) {
  const auto digest = [&](float value) {
    auto tensors = peft_pair(kQ, 3, 4);
    tensors[0].second.data<float>()[1] = value;
    return peft(tensors).digest();
  };
  EXPECT_EQ(digest(1.0f), digest(1.0f));
  EXPECT_NE(digest(1.0f), digest(2.0f));
}

}  // namespace
}  // namespace mlxcel
