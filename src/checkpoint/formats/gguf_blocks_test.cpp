#include "checkpoint/formats/gguf_blocks.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cmath>
#include <cstdint>
#include <sstream>

#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

std::string from_hex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

uint32_t type_number(const std::string& name) {
  for (uint32_t type = 0; type < 64; ++type)
    if (const auto* row = find_ggml_type(type); row && name == row->name) return type;
  ADD_FAILURE() << name;
  return 0;
}

GgufTensor only_tensor(const fs::path& path) { return read_gguf(path).tensors.begin()->second; }

std::vector<float> values_of(const Weight& weight) {
  array dense = dequantized(weight, mx::float32);
  mx::eval(dense);
  return std::vector<float>(dense.data<float>(), dense.data<float>() + dense.size());
}

TEST(GgufBlocks, EveryTypeGivesTheReferencesValues) {
  std::ifstream file(std::string(MLXCEL_SOURCE_DIR) + "/src/checkpoint/formats/testdata/gguf_vectors.txt");
  ASSERT_TRUE(file);
  Folder folder;
  int types = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name, blocks, values;
    words >> name >> blocks >> values;
    const std::string data = from_hex(blocks), expected = from_hex(values);
    const uint64_t count = expected.size() / 4;
    const bool sixteens = name == "Q2_K" || name == "Q3_K" || name == "Q6_K";
    const uint64_t columns = count >= 256 ? 256 : 64;
    const fs::path path =
        folder.put(name, Gguf().tensor("w", type_number(name), {columns, count / columns}, data).bytes());
    const GgufTensor tensor = only_tensor(path);
    const WeightInfo info = describe_gguf_tensor(tensor);
    const Weight weight = load_gguf_tensor(tensor, "w");
    EXPECT_EQ(info.stored_as, name);
    EXPECT_EQ(info.format, weight.format);
    EXPECT_EQ(info.bytes, data.size());
    EXPECT_EQ((weight.scales ? *weight.scales : weight.data).dtype(), info.dtype) << name;
    EXPECT_EQ(weight.quantized(), !sixteens) << name;
    const auto got = values_of(weight);
    ASSERT_EQ(got.size(), count);
    for (uint64_t i = 0; i < count; ++i) {
      float want;
      std::memcpy(&want, expected.data() + 4 * i, 4);
      // Groups of 16 are held in f16: one rounding. Everything else is exact.
      const float slack = sixteens ? std::abs(want) / 2048 + 3e-8f : 0;
      ASSERT_NEAR(got[i], want, slack) << name << " value " << i;
    }
    ++types;
  }
  EXPECT_EQ(types, 11);
}

TEST(GgufBlocks, DenseTypesAreViewed) {
  Folder folder;
  const std::string data = raw(1.0f) + raw(-2.0f) + raw(0.5f) + raw(3.0f) + raw(4.0f) + raw(5.0f);
  const Weight f32 =
      load_gguf_tensor(only_tensor(folder.put("a", Gguf().tensor("w", 0, {3, 2}, data).bytes())), "w");
  EXPECT_EQ(f32.shape, Shape({2, 3}));
  EXPECT_EQ(f32.data.data<float>()[4], 4.0f);
  const std::string halves = raw(mx::float16_t(1.5f)) + raw(mx::float16_t(-2.0f));
  EXPECT_EQ(values_of(load_gguf_tensor(
                only_tensor(folder.put("b", Gguf().tensor("w", 1, {2}, halves).bytes())), "w")),
            (std::vector<float>{1.5f, -2}));
  const std::string brains = raw(mx::bfloat16_t(1.5f)) + raw(mx::bfloat16_t(-2.0f));
  EXPECT_EQ(values_of(load_gguf_tensor(
                only_tensor(folder.put("c", Gguf().tensor("w", 30, {2}, brains).bytes())), "w")),
            (std::vector<float>{1.5f, -2}));
  const std::string numbers = raw(int32_t{7}) + raw(int32_t{-1});  // experts by token id
  const Weight whole =
      load_gguf_tensor(only_tensor(folder.put("d", Gguf().tensor("w", 26, {2}, numbers).bytes())), "w");
  EXPECT_EQ(whole.data.dtype(), mx::int32);
  EXPECT_EQ(whole.data.data<int32_t>()[0], 7);
  EXPECT_EQ(whole.data.data<int32_t>()[1], -1);
}

TEST(GgufBlocks, RowsComeInTheOrderAskedFor) {
  Folder folder;
  std::string data;
  for (int row = 0; row < 4; ++row)
    data += raw(mx::float16_t(1.0f + static_cast<float>(row))) + std::string(32, '\1');
  const RowOrder swap = [](int64_t row) { return 3 - row; };
  const GgufTensor quantised = only_tensor(folder.put("a", Gguf().tensor("w", 8, {32, 4}, data).bytes()));
  const auto values = values_of(load_gguf_tensor(quantised, "w", swap));
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(values[127], 1);
  const GgufTensor bias = only_tensor(
      folder.put("b", Gguf().tensor("b", 0, {4}, raw(0.0f) + raw(1.0f) + raw(2.0f) + raw(3.0f)).bytes()));
  EXPECT_EQ(values_of(load_gguf_tensor(bias, "b", swap)), (std::vector<float>{3, 2, 1, 0}));
}

TEST(GgufBlocks, ScalesBeyondHalfStayExact) {
  Folder folder;
  // -128 * 1000 is beyond f16: scales and biases are f32 then.
  const std::string q8 = raw(mx::float16_t(1000.0f)) + std::string(32, '\x7f');
  const Weight w =
      load_gguf_tensor(only_tensor(folder.put("a", Gguf().tensor("w", 8, {32, 1}, q8).bytes())), "w");
  EXPECT_EQ(w.scales->dtype(), mx::float32);
  EXPECT_EQ(values_of(w)[5], 127000.0f);
  // Q6_K values beyond f16: d * scale * code = 60000 * 127 * -32.
  const std::string q6 = std::string(192, '\0') + std::string(16, '\x7f') + raw(mx::float16_t(60000.0f));
  const Weight dense =
      load_gguf_tensor(only_tensor(folder.put("b", Gguf().tensor("w", 14, {256, 1}, q6).bytes())), "w");
  EXPECT_EQ(dense.data.dtype(), mx::float32);
  EXPECT_EQ(values_of(dense)[7], static_cast<float>(mx::float16_t(60000.0f)) * 127 * -32);
}

}  // namespace
}  // namespace mlxcel
