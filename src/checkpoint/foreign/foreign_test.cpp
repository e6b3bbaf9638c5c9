// Foreign weights against arithmetic written out here: what a format's own packer would have stored.
#include "checkpoint/foreign/foreign.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "checkpoint/foreign/small_floats.h"
#include "checkpoint/formats/planes.h"
#include "checkpoint/formats/quant_map.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

/// A folder of one file, made tensor by tensor.
class Files {
 public:
  template <class T>
  Files& put(const std::string& name, const char* dtype, const Shape& shape, const std::vector<T>& values) {
    header_ += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})",
                           header_.empty() ? "" : ", ", name, dtype, to_string(shape), data_.size(),
                           data_.size() + values.size() * sizeof(T));
    for (const T& value : values) data_ += raw(value);
    return *this;
  }
  std::shared_ptr<Source> open(const std::string& config) {
    folder_.put("model.safetensors", safetensors("{" + header_ + "}", data_));
    const Config parsed = Config::parse(config, "config.json");
    size_t bytes = 0;
    auto tensors = read_safetensors_folder(folder_.path(), warnings, bytes);
    auto foreign = take_foreign(tensors, ForeignConfig::from(parsed), warnings);
    return with_conversions(join_planes(std::move(tensors), QuantMap::from(parsed), warnings),
                            std::move(foreign));
  }
  std::vector<std::string> warnings;

 private:
  Folder folder_;
  std::string header_, data_;
};

std::vector<float> values_of(Source& source, const std::string& name) {
  const Weight weight = source.load(name);
  EXPECT_EQ(weight.name, name);
  EXPECT_EQ(weight.shape, source.find(name).value().shape);
  EXPECT_EQ(weight.format, source.find(name).value().format);
  array dense = mx::contiguous(dequantized(weight, mx::float32));
  dense.eval();
  return {dense.data<float>(), dense.data<float>() + dense.size()};
}

void expect_near(const std::vector<float>& found, const std::vector<float>& want, float part) {
  ASSERT_EQ(found.size(), want.size());
  float largest = 0.0f;
  for (const float v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(found[i], want[i], part * largest) << "value " << i;
}

/// Codes, zero points and scales of a matrix [out, in] with groups.
struct Matrix {
  int out, in, group;
  std::vector<unsigned> codes, zeros;  // [out][in], [out][groups]
  std::vector<float> scales;           // [out][groups]

  Matrix(int rows, int columns, int g, unsigned most = 15) : out(rows), in(columns), group(g) {
    std::mt19937 random(7);
    for (int i = 0; i < out * in; ++i) codes.push_back(random() % (most + 1));
    for (int i = 0; i < out * groups(); ++i) {
      zeros.push_back(1 + random() % (most - 1));
      scales.push_back(static_cast<float>(1 + random() % 31) / 256.0f);
    }
  }
  int groups() const { return in / group; }
  unsigned code(int row, int column) const { return codes[static_cast<size_t>(row * in + column)]; }
  unsigned zero(int row, int g) const { return zeros[static_cast<size_t>(row * groups() + g)]; }
  float scale(int row, int g) const { return scales[static_cast<size_t>(row * groups() + g)]; }
  std::vector<float> values(float fixed_zero = -1.0f) const {
    std::vector<float> all;
    for (int r = 0; r < out; ++r)
      for (int c = 0; c < in; ++c) {
        const float z = fixed_zero >= 0.0f ? fixed_zero : static_cast<float>(zero(r, c / group));
        all.push_back((static_cast<float>(code(r, c)) - z) * scale(r, c / group));
      }
    return all;
  }
  std::vector<mx::float16_t> scales_by_group() const {
    std::vector<mx::float16_t> all;
    for (int g = 0; g < groups(); ++g)
      for (int r = 0; r < out; ++r) all.push_back(mx::float16_t(scale(r, g)));
    return all;
  }
  std::vector<mx::float16_t> scales_by_row() const {
    std::vector<mx::float16_t> all;
    for (const float s : scales) all.push_back(mx::float16_t(s));
    return all;
  }
};

/// As AutoAWQ packs: nibble i of a word holds column order[i].
std::vector<int32_t> awq_words(int rows, int columns, const std::function<unsigned(int, int)>& code) {
  constexpr int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<int32_t> words;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; c += 8) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) word |= code(r, c + order[i]) << (4 * i);
      words.push_back(static_cast<int32_t>(word));
    }
  return words;
}

/// `bits` a code, low first, along columns.
std::vector<int32_t> row_words(int rows, int columns, int bits,
                               const std::function<unsigned(int, int)>& code) {
  std::vector<int32_t> words;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; c += 32 / bits) {
      uint32_t word = 0;
      for (int i = 0; i < 32 / bits; ++i) word |= code(r, c + i) << (bits * i);
      words.push_back(static_cast<int32_t>(word));
    }
  return words;
}

/// The same along rows: a word holds one column of several rows.
std::vector<int32_t> column_words(int rows, int columns, int bits,
                                  const std::function<unsigned(int, int)>& code) {
  std::vector<int32_t> words;
  for (int r = 0; r < rows; r += 32 / bits)
    for (int c = 0; c < columns; ++c) {
      uint32_t word = 0;
      for (int i = 0; i < 32 / bits; ++i) word |= code(r + i, c) << (bits * i);
      words.push_back(static_cast<int32_t>(word));
    }
  return words;
}

const char* const kAwq = R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32,
                            "zero_point": true, "version": "gemm"}})";

Files awq_files(const Matrix& m) {
  Files files;
  files
      .put("l.qweight", "I32", {m.in, m.out / 8},
           awq_words(m.in, m.out, [&](int r, int c) { return m.code(c, r); }))
      .put("l.qzeros", "I32", {m.groups(), m.out / 8},
           awq_words(m.groups(), m.out, [&](int g, int c) { return m.zero(c, g); }))
      .put("l.scales", "F16", {m.groups(), m.out}, m.scales_by_group());
  return files;
}

TEST(Foreign, AwqNibblesAlternateAlongTheOutputs) {
  const Matrix m(24, 96, 32);
  auto source = awq_files(m).open(kAwq);
  EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
  EXPECT_EQ(source->find("l.weight")->format, (QuantFormat{QuantMode::affine, 4, 32}));
  expect_near(values_of(*source, "l.weight"), m.values(), 1e-3f);
}

TEST(Foreign, AwqContradictionsNameTheTensor) {
  const Matrix m(24, 96, 32);
  expect_error([&] { awq_files(m).open(R"({"quantization_config": {"quant_method": "awq", "bits": 3}})"); },
               ErrorKind::unsupported, {"l.qweight", "3 bits"});
  expect_error(
      [&] { awq_files(m).open(R"({"quantization_config": {"quant_method": "awq", "group_size": 64}})"); },
      ErrorKind::bad_checkpoint, {"l.scales", "groups of 32", "64"});
  expect_error(
      [&] { awq_files(m).open(R"({"quantization_config": {"quant_method": "awq", "version": "gemv"}})"); },
      ErrorKind::unsupported, {"version", "gemv"});
  expect_error([&] { awq_files(m).open(R"({"quantization_config": {"quant_method": "fp8"}})"); },
               ErrorKind::bad_checkpoint, {"l.qweight", "fp8"});
  expect_error([&] { awq_files(m).open("{}"); }, ErrorKind::bad_checkpoint, {"l.qweight", "quant_method"});
  Files none;
  none.put<float>("l.weight", "F32", {1, 1}, {1.0f});
  expect_error([&] { none.open(kAwq); }, ErrorKind::bad_checkpoint, {"awq", "qweight"});
  Files torn;
  torn.put("l.qweight", "I32", {m.in, 3}, std::vector<int32_t>(static_cast<size_t>(m.in) * 3));
  expect_error([&] { torn.open(kAwq); }, ErrorKind::bad_checkpoint, {"l.scales", "missing"});
}

Files gptq_files(const Matrix& m, unsigned lowered, const std::vector<int32_t>& order = {}) {
  Files files;
  files
      .put("l.qweight", "I32", {m.in / 8, m.out},
           column_words(m.in, m.out, 4, [&](int r, int c) { return m.code(c, r); }))
      .put("l.qzeros", "I32", {m.groups(), m.out / 8},
           row_words(m.groups(), m.out, 4, [&](int g, int c) { return m.zero(c, g) - lowered; }))
      .put("l.scales", "F16", {m.groups(), m.out}, m.scales_by_group());
  if (!order.empty()) files.put("l.g_idx", "I32", {m.in}, order);
  return files;
}

std::vector<int32_t> in_order(const Matrix& m) {
  std::vector<int32_t> order;
  for (int i = 0; i < m.in; ++i) order.push_back(i / m.group);
  return order;
}

TEST(Foreign, GptqZeroPointsAreRaisedInTheFirstFormatOnly) {
  const Matrix m(16, 128, 64);
  for (const bool first : {true, false}) {
    const std::string config = fmt::format(
        R"({{"quantization_config": {{"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "{}"}}}})",
        first ? "gptq" : "gptq_v2");
    auto source = gptq_files(m, first ? 1 : 0, in_order(m)).open(config);
    EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
    expect_near(values_of(*source, "l.weight"), m.values(), 1e-3f);
  }
}

TEST(Foreign, GptqWholeRowsAreCutIntoGroupsOf128) {
  const Matrix m(8, 256, 256);
  auto source =
      gptq_files(m, 1).open(R"({"quantization_config": {"quant_method": "gptq", "group_size": -1}})");
  EXPECT_EQ(source->find("l.weight")->format, (QuantFormat{QuantMode::affine, 4, 128}));
  expect_near(values_of(*source, "l.weight"), m.values(), 1e-3f);
}

TEST(Foreign, GptqOutOfOrderIsRefused) {
  const Matrix m(8, 64, 32);
  auto order = in_order(m);
  std::swap(order.front(), order.back());
  expect_error(
      [&] {
        gptq_files(m, 1, order)
            .open(R"({"quantization_config": {"quant_method": "gptq", "group_size": 32}})");
      },
      ErrorKind::unsupported, {"l.g_idx", "act-order"});
}

std::string compressed(int bits) {
  return fmt::format(
      R"({{"quantization_config": {{"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {{"group_0": {{"weights": {{"num_bits": {}}}}}}}}}}})",
      bits);
}

TEST(Foreign, PackedIntegersAreCentredOrHaveZeroPoints) {
  for (const int bits : {4, 8})
    for (const bool zeros : {false, true}) {
      const Matrix m(16, 64, 32, (1u << bits) - 1);
      Files files;
      files
          .put("l.weight_packed", "I32", {m.out, m.in * bits / 32},
               row_words(m.out, m.in, bits, [&](int r, int c) { return m.code(r, c); }))
          .put("l.weight_scale", "F16", {m.out, m.groups()}, m.scales_by_row())
          .put<int64_t>("l.weight_shape", "I64", {2}, {m.out, m.in});
      if (zeros)
        files.put("l.weight_zero_point", "I32", {m.out * bits / 32, m.groups()},
                  column_words(m.out, m.groups(), bits, [&](int r, int g) { return m.zero(r, g); }));
      auto source = files.open(compressed(bits));
      EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
      expect_near(values_of(*source, "l.weight"),
                  m.values(zeros ? -1.0f : static_cast<float>(1 << (bits - 1))), 2e-3f);
    }
}

TEST(Foreign, PackedIntegersOfAnotherShapeAreRefused) {
  Files files;
  files.put("l.weight_packed", "I32", {2, 8}, std::vector<int32_t>(16))
      .put("l.weight_scale", "F16", {2, 2}, std::vector<mx::float16_t>(4))
      .put<int64_t>("l.weight_shape", "I64", {2}, {2, 32});
  expect_error([&] { files.open(compressed(4)); }, ErrorKind::bad_checkpoint,
               {"l.weight_shape", "l.weight_packed"});
}

TEST(Foreign, BytesWithOneScaleARow) {
  Files files;
  std::vector<int8_t> codes;
  std::vector<float> want;
  const std::vector<float> scales = {0.5f, 0.25f};
  for (int i = 0; i < 128; ++i) {
    codes.push_back(static_cast<int8_t>(i * 2 - 128));
    want.push_back(static_cast<float>(codes.back()) * scales[static_cast<size_t>(i / 64)]);
  }
  auto source = files.put("l.weight", "I8", {2, 64}, codes)
                    .put("l.weight_scale", "F32", {2, 1}, scales)
                    .put<float>("l.input_scale", "F32", {1}, {1.0f})
                    .open(compressed(8));
  EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
  expect_near(values_of(*source, "l.weight"), want, 1e-6f);
}

std::vector<uint8_t> fp8_codes(size_t count) {
  std::mt19937 random(3);
  std::vector<uint8_t> codes;
  while (codes.size() < count)
    if (const auto code = static_cast<uint8_t>(random()); (code & 127) != 127) codes.push_back(code);
  return codes;
}

TEST(Foreign, Fp8ScalesOfBlocksRowsAndTensors) {
  const int rows = 130, columns = 200;  // neither is a multiple of the block
  const auto codes = fp8_codes(static_cast<size_t>(rows) * columns);
  const auto check = [&](const char* leaf, const Shape& shape, const std::string& config,
                         const std::function<size_t(int, int)>& scale_of) {
    size_t count = 1;
    for (const int n : shape) count *= static_cast<size_t>(n);
    std::vector<float> scales, want;
    for (size_t i = 0; i < count; ++i) scales.push_back(0.01f * static_cast<float>(i + 1));
    Files files;
    files.put("l.weight", "F8_E4M3", {rows, columns}, codes);
    if (*leaf) files.put(leaf, "F32", shape, scales);
    auto source = files.open(config);
    EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c)
        want.push_back(e4m3_values()[codes[static_cast<size_t>(r * columns + c)]] *
                       (*leaf ? scales[scale_of(r, c)] : 1.0f));
    expect_near(values_of(*source, "l.weight"), want, 4e-3f);
  };
  const std::string plain = R"({"quantization_config": {"quant_method": "fp8"}})";
  check("l.weight_scale_inv", {2, 2}, plain,
        [](int r, int c) { return static_cast<size_t>(r / 128 * 2 + c / 128); });
  check("l.weight_scale_inv", {3, 2},
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 100]}})",
        [](int r, int c) { return static_cast<size_t>(r / 64 * 2 + c / 100); });
  check("l.weight_scale", {130, 1}, plain, [](int r, int) { return static_cast<size_t>(r); });
  check("l.weight_scale", {130}, plain, [](int r, int) { return static_cast<size_t>(r); });
  check("l.weight_scale", {}, plain, [](int, int) { return size_t{0}; });
  check("l.weight_scale_inv", {1}, plain, [](int, int) { return size_t{0}; });
  check("", {}, plain, [](int, int) { return size_t{0}; });
}

TEST(Foreign, Fp8OfExpertsHasBlocksForEach) {
  const auto codes = fp8_codes(3 * 4 * 6);
  std::vector<float> scales, want;
  for (int i = 0; i < 3 * 2 * 2; ++i) scales.push_back(0.5f + static_cast<float>(i));
  Files files;
  auto source = files.put("e.gate_up_proj", "F8_E4M3", {3, 4, 6}, codes)
                    .put("e.gate_up_proj_scale_inv", "F32", {3, 2, 2}, scales)
                    .open(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 4]}})");
  for (int e = 0; e < 3; ++e)
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < 6; ++c)
        want.push_back(e4m3_values()[codes[static_cast<size_t>((e * 4 + r) * 6 + c)]] *
                       scales[static_cast<size_t>((e * 2 + r / 2) * 2 + c / 4)]);
  expect_near(values_of(*source, "e.gate_up_proj"), want, 4e-3f);
}

TEST(Foreign, Fp8ContradictionsNameTheTensor) {
  const auto open = [](const Shape& scale, const char* leaf, const char* second = nullptr) {
    Files files;
    size_t count = 1;
    for (const int n : scale) count *= static_cast<size_t>(n);
    files.put("l.weight", "F8_E4M3", {256, 256}, std::vector<uint8_t>(65536))
        .put(leaf, "F32", scale, std::vector<float>(count, 1.0f));
    if (second) files.put<float>(second, "F32", {1}, {1.0f});
    files.open(R"({"quantization_config": {"quant_method": "fp8"}})");
  };
  expect_error([&] { open({3, 2}, "l.weight_scale_inv"); }, ErrorKind::bad_checkpoint,
               {"l.weight_scale_inv", "[2, 2]", "[3, 2]"});
  expect_error([&] { open({2, 2}, "l.weight_scale_inv", "l.weight_scale"); }, ErrorKind::bad_checkpoint,
               {"l.weight", "scaled twice"});
  Files dense;
  dense.put<mx::bfloat16_t>("l.weight", "BF16", {1, 2}, {mx::bfloat16_t(1), mx::bfloat16_t(2)})
      .put<float>("l.weight_scale_inv", "F32", {1, 1}, {1.0f});
  expect_error([&] { dense.open("{}"); }, ErrorKind::bad_checkpoint, {"l.weight_scale_inv", "weight itself"});
}

std::vector<float> fp4(const std::vector<uint8_t>& pairs, int group, const std::vector<float>& scales) {
  constexpr float table[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
  std::vector<float> values;
  for (size_t i = 0; i < pairs.size() * 2; ++i)
    values.push_back(table[pairs[i / 2] >> (i % 2 * 4) & 15] * scales[i / static_cast<size_t>(group)]);
  return values;
}

std::vector<uint8_t> some_pairs(size_t count) {
  std::mt19937 random(11);
  std::vector<uint8_t> pairs(count);
  for (auto& pair : pairs) pair = static_cast<uint8_t>(random());
  return pairs;
}

TEST(Foreign, BlocksOfGptOssKeepTheirCodes) {
  const auto pairs = some_pairs(2 * 4 * 2 * 16);
  std::vector<uint8_t> exponents;
  std::vector<float> scales;
  for (int i = 0; i < 2 * 4 * 2; ++i) {
    exponents.push_back(static_cast<uint8_t>(120 + i));
    scales.push_back(std::ldexp(1.0f, i - 7));
  }
  Files files;
  auto source = files.put("e.down_proj_blocks", "U8", {2, 4, 2, 16}, pairs)
                    .put("e.down_proj_scales", "U8", {2, 4, 2}, exponents)
                    .open(R"({"quantization_config": {"quant_method": "mxfp4"}})");
  EXPECT_EQ(source->find("e.down_proj.weight")->shape, (Shape{2, 4, 64}));
  EXPECT_EQ(source->find("e.down_proj.weight")->format, (QuantFormat{QuantMode::mxfp4, 4, 32}));
  expect_near(values_of(*source, "e.down_proj.weight"), fp4(pairs, 32, scales), 0.0f);
}

TEST(Foreign, FloatsOfFourBitsWithTwoLevelsOfScales) {
  const auto pairs = some_pairs(3 * 32);
  const auto codes = fp8_codes(3 * 4);
  std::vector<float> scales;
  for (const uint8_t code : codes) scales.push_back(e4m3_values()[code] * 0.25f);
  const auto want = fp4(pairs, 16, scales);
  Files packed;
  auto source = packed.put("l.weight_packed", "U8", {3, 32}, pairs)
                    .put("l.weight_scale", "F8_E4M3", {3, 4}, codes)
                    .put<float>("l.weight_global_scale", "F32", {1}, {4.0f})  // divides
                    .put<float>("l.input_global_scale", "F32", {1}, {4.0f})
                    .open(R"({"quantization_config": {"quant_method": "compressed-tensors"}})");
  EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
  expect_near(values_of(*source, "l.weight"), want, 4e-3f);
  Files optimised;
  source = optimised.put("l.weight", "U8", {3, 32}, pairs)
               .put("l.weight_scale", "F8_E4M3", {3, 4}, codes)
               .put<float>("l.weight_scale_2", "F32", {}, {0.25f})  // multiplies
               .put<float>("l.input_scale", "F32", {}, {1.0f})
               .open(R"({"quantization_config": {"quant_method": "modelopt"}})");
  EXPECT_EQ(source->names(), std::vector<std::string>{"l.weight"});
  expect_near(values_of(*source, "l.weight"), want, 4e-3f);
  Files zero;
  zero.put("l.weight", "U8", {3, 32}, pairs)
      .put("l.weight_scale", "F8_E4M3", {3, 4}, codes)
      .put<float>("l.weight_scale_2", "F32", {}, {0.0f});
  expect_error([&] { zero.open("{}"); }, ErrorKind::bad_checkpoint, {"l.weight_scale_2", "not 0"});
}

TEST(Foreign, PackedMxfp4) {
  const auto pairs = some_pairs(2 * 32);
  const std::vector<uint8_t> exponents = {127, 128, 126, 120};
  Files files;
  auto source = files.put("l.weight_packed", "U8", {2, 32}, pairs)
                    .put("l.weight_scale", "U8", {2, 2}, exponents)
                    .open(R"({"quantization_config": {"quant_method": "compressed-tensors"}})");
  EXPECT_EQ(source->find("l.weight")->format, (QuantFormat{QuantMode::mxfp4, 4, 32}));
  expect_near(values_of(*source, "l.weight"), fp4(pairs, 32, {1.0f, 2.0f, 0.5f, 0x1p-7f}), 0.0f);
}

/// 12 rows of 64 as BitNet packs them: the first three in the lowest bits of the bytes, and so on.
std::vector<uint8_t> ternary_bytes(const std::vector<int>& values) {
  std::vector<uint8_t> bytes(3 * 64, 0);
  for (size_t row = 0; row < 12; ++row)
    for (size_t c = 0; c < 64; ++c)
      bytes[row % 3 * 64 + c] |= static_cast<uint8_t>((values[row * 64 + c] + 1) << (2 * (row / 3)));
  return bytes;
}

std::vector<int> ternary_values() {
  std::mt19937 random(3);
  std::vector<int> values;
  for (int i = 0; i < 12 * 64; ++i) values.push_back(static_cast<int>(random() % 3) - 1);
  return values;
}

TEST(Foreign, ExponentsOfBlocksKeepTheCodes) {
  // DeepSeek-V4: E4M3 in blocks of 4 x 64 (128 x 128 as published), scales that are powers of two.
  std::vector<uint8_t> codes;
  for (int i = 0; i < 6 * 128; ++i) codes.push_back(static_cast<uint8_t>((i * 37 + 5) % 126));
  const std::vector<uint8_t> exponents = {127, 125, 130, 120};
  const std::string config =
      R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 64]}})";
  std::vector<float> want;
  for (int r = 0; r < 6; ++r)
    for (int c = 0; c < 128; ++c)
      want.push_back(e4m3_values()[codes[static_cast<size_t>(r * 128 + c)]] *
                     from_e8m0(exponents[static_cast<size_t>(r / 4 * 2 + c / 64)]));
  for (const char* scale : {"w.scale", "w.weight_scale_inv"}) {
    Files files;
    files.put("w.weight", "F8_E4M3", {6, 128}, codes).put(scale, "F8_E8M0", {2, 2}, exponents);
    const auto source = files.open(config);
    EXPECT_EQ(source->find("w.weight").value().format, (QuantFormat{QuantMode::mxfp8, 8, 32}));
    EXPECT_EQ(values_of(*source, "w.weight"), want) << scale;
    EXPECT_EQ(source->names(), std::vector<std::string>{"w.weight"});
  }
}

TEST(Foreign, PairsOfFourBitsWithExponents) {
  // The experts of DeepSeek-V4: two codes a byte, the low half first, an exponent for each 32.
  std::vector<int8_t> pairs;
  for (int i = 0; i < 3 * 32; ++i) pairs.push_back(static_cast<int8_t>((i * 29 + 11) % 256 - 128));
  const std::vector<uint8_t> exponents = {127, 126, 129, 121, 128, 127};
  std::vector<float> want;
  for (int r = 0; r < 3; ++r)
    for (int c = 0; c < 64; ++c) {
      const auto pair = static_cast<uint8_t>(pairs[static_cast<size_t>(r * 32 + c / 2)]);
      want.push_back(from_e2m1(c % 2 == 0 ? pair & 15u : pair >> 4) *
                     from_e8m0(exponents[static_cast<size_t>(r * 2 + c / 32)]));
    }
  Files files;
  files.put("e.w1.weight", "I8", {3, 32}, pairs).put("e.w1.scale", "F8_E8M0", {3, 2}, exponents);
  const auto source = files.open(R"({"quantization_config": {"quant_method": "fp8"}})");
  EXPECT_EQ(source->find("e.w1.weight").value().format, (QuantFormat{QuantMode::mxfp4, 4, 32}));
  EXPECT_EQ(values_of(*source, "e.w1.weight"), want);
  Files short_of;
  short_of.put("e.w1.weight", "I8", {3, 32}, pairs)
      .put("e.w1.scale", "F8_E8M0", {3, 1}, std::vector<uint8_t>(3));
  try {
    (void)short_of.open("{}");
    FAIL() << "scales of another shape";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("e.w1.scale: expected F8_E8M0 [3, 2]"), std::string::npos)
        << error.what();
  }
}

TEST(Foreign, TernaryBytesStayCodesOfTwoBits) {
  const auto values = ternary_values();
  for (const bool divided : {true, false}) {
    Files files;
    files.put("a.weight", "U8", {3, 64}, ternary_bytes(values));
    files.put("a.weight_scale", "F32", {1}, std::vector<float>{3.0f});
    const auto source = files.open(fmt::format(R"({{"quantization_config": {{"quant_method": "bitnet"{}}}}})",
                                               divided ? "" : R"(, "linear_class": "autobitlinear")"));
    const auto info = source->find("a.weight").value();
    ASSERT_TRUE(info.format.has_value());
    EXPECT_EQ(info.format->bits, 2);
    EXPECT_EQ(info.shape, (Shape{12, 64}));
    std::vector<float> want;
    for (const int v : values) want.push_back(static_cast<float>(v) * (divided ? 1.0f / 3.0f : 3.0f));
    const auto found = values_of(*source, "a.weight");
    expect_near(found, want, 1e-7f);
    for (size_t i = 0; i < want.size(); ++i)
      if (values[i] == 0) {
        EXPECT_EQ(found[i], 0.0f);
      }
  }
}

TEST(Foreign, TernaryContradictionsNameTheTensor) {
  const auto opened = [](std::vector<uint8_t> bytes, float scale, const Shape& shape) {
    Files files;
    files.put("a.weight", "U8", {3, 64}, bytes);
    files.put("a.weight_scale", "F32", shape, std::vector<float>(static_cast<size_t>(shape[0]), scale));
    return values_of(*files.open(R"({"quantization_config": {"quant_method": "bitnet"}})"), "a.weight");
  };
  const auto good = ternary_bytes(ternary_values());
  EXPECT_THROW(opened(good, 0.0f, {1}), Error);
  EXPECT_THROW(opened(good, INFINITY, {1}), Error);
  EXPECT_THROW(opened(good, 1.0f, {12}), Error);
  auto bad = good;
  bad[70] = 0xFF;
  EXPECT_THROW(opened(bad, 1.0f, {1}), Error);
}

TEST(Foreign, MethodsAndNumbersOfTheConfigAreBounded) {
  const auto from = [](const std::string& block) {
    return ForeignConfig::from(Config::parse(R"({"quantization_config": )" + block + "}", "config.json"));
  };
  expect_error([&] { from(R"({"quant_method": "hqq"})"); }, ErrorKind::unsupported, {"quant_method", "hqq"});
  expect_error([&] { from(R"({"quant_method": "awq", "bits": 0})"); }, ErrorKind::bad_checkpoint, {"bits"});
  expect_error([&] { from(R"({"quant_method": "gptq", "group_size": 0})"); }, ErrorKind::bad_checkpoint,
               {"group_size"});
  expect_error([&] { from(R"({"quant_method": "gptq", "checkpoint_format": "marlin"})"); },
               ErrorKind::unsupported, {"checkpoint_format", "marlin"});
  expect_error([&] { from(R"({"quant_method": "fp8", "weight_block_size": [128]})"); },
               ErrorKind::bad_checkpoint, {"weight_block_size"});
  expect_error([&] { from(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"); },
               ErrorKind::bad_checkpoint, {"weight_block_size"});
  EXPECT_TRUE(from("null").method.empty());
}

TEST(Foreign, E4m3HasTheValuesOfItsStandard) {
  const auto& t = e4m3_values();
  EXPECT_EQ(t[0x00], 0.0f);
  EXPECT_EQ(t[0x01], 0x1p-9f);
  EXPECT_EQ(t[0x08], 0x1p-6f);
  EXPECT_EQ(t[0x38], 1.0f);
  EXPECT_EQ(t[0x7e], 448.0f);
  EXPECT_EQ(t[0xbc], -1.5f);
  EXPECT_TRUE(std::isnan(t[0x7f]) && std::isnan(t[0xff]));
  EXPECT_EQ(from_e8m0(127), 1.0f);
  EXPECT_EQ(from_e8m0(0), 0x1p-127f);
  EXPECT_TRUE(std::isnan(from_e8m0(255)));
}

}  // namespace
}  // namespace mlxcel
