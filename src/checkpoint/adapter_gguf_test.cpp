#include "checkpoint/adapter_gguf.h"

#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

std::string floats(size_t count, float first = 1.0f) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += raw(first + static_cast<float>(i));
  return out;
}

Gguf adapter(const char* architecture = "llama", float alpha = 8.0f) {
  Gguf file;
  file.string("general.architecture", architecture).string("general.type", "adapter");
  file.string("adapter.type", "lora").number("adapter.lora.alpha", alpha);
  return file;
}

class GgufAdapterTest : public ::testing::Test {
 protected:
  AdapterFiles read(const Gguf& file) {
    return AdapterFiles::read(folder_.put("adapter.gguf", file.bytes()));
  }
  Folder folder_;
};

TEST_F(GgufAdapterTest, ReadsPairsUnderTheirPublishedNames) {
  Gguf file = adapter();
  file.tensor("blk.1.ffn_down.weight.lora_a", 0, {4, 2}, floats(8));
  file.tensor("blk.1.ffn_down.weight.lora_b", 0, {2, 3}, floats(6, 2.0f));
  const AdapterFiles files = read(file);
  EXPECT_STREQ(files.format(), "GGUF");
  EXPECT_EQ(files.rank(), 2);
  EXPECT_EQ(files.pairs(), 1u);
  const auto found = files.of("model.layers.1.mlp.down_proj.weight", {3, 4});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->right, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(found->left, (std::vector<float>{8, 12, 16, 20, 24, 28}));  // times alpha / r
  EXPECT_FALSE(files.heads_follow_tables());
  EXPECT_TRUE(files.touches("model.layers.1.mlp.down_proj.weight"));
}

TEST_F(GgufAdapterTest, RowsOfRotatedPairsGoBackToTheirHalves) {
  // Two heads of four rows: the file holds 0 2 1 3 | 4 6 5 7 where 0 … 7 were published.
  Gguf file = adapter("llama", 1.0f);
  std::string b;
  for (const float row : {0.0f, 2.0f, 1.0f, 3.0f, 4.0f, 6.0f, 5.0f, 7.0f}) b += raw(row);
  for (const char* part : {"attn_q", "attn_k"}) {
    file.tensor(std::string("blk.0.") + part + ".weight.lora_a", 0, {3, 1}, floats(3));
    file.tensor(std::string("blk.0.") + part + ".weight.lora_b", 0, {1, 8}, b);
  }
  AdapterFiles files = read(file);
  files.settle({.heads = 2, .kv_heads = 2});
  EXPECT_EQ(files.of("model.layers.0.self_attn.q_proj.weight", {8, 3})->left,
            (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  AdapterFiles uneven = read(file);
  expect_error([&] { uneven.settle({.heads = 3, .kv_heads = 2}); }, ErrorKind::bad_checkpoint,
               {"attn_", "3 heads"});
}

TEST_F(GgufAdapterTest, TablesAreTurned) {
  Gguf file = adapter("llama", 2.0f);
  file.tensor("token_embd.weight.lora_a", 0, {2, 5}, floats(10));         // [rows, rank]
  file.tensor("token_embd.weight.lora_b", 0, {2, 3}, floats(6, 100.0f));  // [width, rank]
  const AdapterFiles files = read(file);
  const auto found = files.of("model.embed_tokens.weight", {5, 3});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->left, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(found->right, (std::vector<float>{100, 102, 104, 101, 103, 105}));
}

TEST_F(GgufAdapterTest, BanksOfExpertsAndHalfFloats) {
  Gguf file = adapter("qwen3moe", 0.0f);                                   // no alpha: the pairs as they are
  const std::string half = raw<uint16_t>(0x3c00) + raw<uint16_t>(0x4000);  // 1, 2
  file.tensor("blk.0.ffn_gate_exps.weight.lora_a", 1, {1, 1, 2}, half);
  file.tensor("blk.0.ffn_gate_exps.weight.lora_b", 0, {1, 3, 2}, floats(6));
  const AdapterFiles files = read(file);
  const auto found = files.of("model.layers.0.mlp.switch_mlp.gate_proj.weight", {2, 3, 1});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->count, 2);
  EXPECT_EQ(found->right, (std::vector<float>{1, 2}));
  EXPECT_EQ(found->left, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(GgufAdapterTest, WhatDoesNotFitIsRefusedByName) {
  const auto refused = [&](const Gguf& file, ErrorKind kind, const std::vector<std::string>& parts) {
    expect_error([&] { (void)read(file); }, kind, parts);
  };
  Gguf model;
  model.string("general.architecture", "llama");
  refused(model, ErrorKind::unsupported, {"general.type", "adapter"});
  Gguf control = Gguf().string("general.architecture", "llama").string("general.type", "adapter");
  control.string("adapter.type", "control_vector");
  refused(control, ErrorKind::unsupported, {"adapter.type", "lora", "control_vector"});
  refused(adapter("no_such_family"), ErrorKind::unsupported, {"general.architecture", "no_such_family"});
  refused(adapter(), ErrorKind::bad_checkpoint, {"no LoRA pairs"});
  refused(adapter().tensor("blk.0.attn_q.weight.lora_a", 0, {2, 1}, floats(2)), ErrorKind::bad_checkpoint,
          {"not half of a LoRA pair", "attn_q"});
  refused(adapter().tensor("blk.0.attn_q.weight", 0, {2, 1}, floats(2)), ErrorKind::bad_checkpoint,
          {"not half of a LoRA pair"});
  const auto pair = [](const std::string& name, const std::vector<uint64_t>& a,
                       const std::vector<uint64_t>& b, float alpha = 8.0f) {
    const auto count = [](const std::vector<uint64_t>& axes) {
      size_t n = 1;
      for (const uint64_t axis : axes) n *= axis;
      return n;
    };
    Gguf file = adapter("llama", alpha);
    file.tensor(name + ".lora_a", 0, a, floats(count(a)));
    file.tensor(name + ".lora_b", 0, b, floats(count(b)));
    return file;
  };
  refused(pair("blk.0.nothing.weight", {4, 2}, {2, 3}), ErrorKind::bad_checkpoint, {"nothing", "llama"});
  refused(pair("blk.0.attn_v.weight", {4, 2}, {3, 3}), ErrorKind::bad_checkpoint, {"attn_v", "do not fit"});
  refused(pair("blk.0.attn_v.weight", {4, 2, 2}, {2, 3}), ErrorKind::bad_checkpoint, {"do not fit"});
  refused(pair("blk.0.attn_v.weight", {4, 5000}, {5000, 3}), ErrorKind::bad_checkpoint,
          {"ranks are 1 to 4096"});
  refused(pair("blk.0.attn_v.weight", {4, 2}, {2, 3}, std::numeric_limits<float>::infinity()),
          ErrorKind::bad_checkpoint, {"adapter.lora.alpha", "finite"});
  Gguf nan = adapter();
  nan.tensor("blk.0.attn_v.weight.lora_a", 0, {1, 1}, raw(std::numeric_limits<float>::quiet_NaN()));
  nan.tensor("blk.0.attn_v.weight.lora_b", 0, {1, 1}, floats(1));
  refused(nan, ErrorKind::bad_checkpoint, {"attn_v", "not finite"});
}

TEST_F(GgufAdapterTest, LyingFilesAreRefused) {
  Gguf file = adapter();
  file.tensor("blk.0.attn_v.weight.lora_a", 0, {4, 2}, floats(8));
  file.tensor("blk.0.attn_v.weight.lora_b", 0, {2, 3}, floats(6));
  const std::string whole = file.bytes();
  for (size_t cut = 0; cut + 32 < whole.size(); cut += 13) {  // the last block is padding
    const auto path = folder_.put("cut.gguf", whole.substr(0, cut));
    EXPECT_THROW((void)AdapterFiles::read(path), Error) << cut;
  }
  Gguf far = adapter();
  far.tensor_at("blk.0.attn_v.weight.lora_a", 0, {4, 2}, uint64_t{1} << 62);
  far.tensor_at("blk.0.attn_v.weight.lora_b", 0, {2, 3}, 0);
  EXPECT_THROW((void)read(far), Error);
  Gguf large = adapter();
  large.tensor_at("blk.0.attn_v.weight.lora_a", 0, {uint64_t{1} << 33, uint64_t{1} << 33}, 0);
  EXPECT_THROW((void)read(large), Error);
}

}  // namespace
}  // namespace mlxcel
