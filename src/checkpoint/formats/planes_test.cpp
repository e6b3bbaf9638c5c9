#include "checkpoint/formats/planes.h"

#include <gtest/gtest.h>

#include "checkpoint/formats/safetensors_writer.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

QuantMap map_of(const std::string& json) { return QuantMap::from(Config::parse(json, "config.json")); }

array blank(const Shape& shape, mx::Dtype dtype) {
  array out = allocated(shape, dtype);
  std::memset(mutable_bytes(out), 0, out.nbytes());
  return out;
}

struct Kit {
  Folder folder;
  std::vector<std::pair<std::string, array>> tensors;
  std::vector<std::string> warnings;

  void affine(const std::string& module, int out, int in, int bits, int group,
              mx::Dtype scales = mx::float16) {
    tensors.emplace_back(module + ".weight", blank({out, in * bits / 32}, mx::uint32));
    tensors.emplace_back(module + ".scales", blank({out, in / group}, scales));
    tensors.emplace_back(module + ".biases", blank({out, in / group}, scales));
  }
  std::shared_ptr<Source> open(const std::string& config = "{}") {
    write_safetensors(folder / "model.safetensors", tensors);
    size_t bytes = 0;
    StoredTensors stored = read_safetensors_folder(folder.path(), warnings, bytes);
    return join_planes(std::move(stored), map_of(config), warnings);
  }
  void refuse(const std::vector<std::string>& parts, const std::string& config = "{}") {
    expect_error([&] { open(config); }, ErrorKind::bad_checkpoint, parts);
  }
};
struct Planes : testing::Test, Kit {};

TEST_F(Planes, BitsAndGroupFollowFromShapes) {
  affine("a", 4, 128, 3, 32);
  affine("b", 4, 256, 6, 128, mx::bfloat16);
  tensors.emplace_back("c.weight", blank({4, 8}, mx::bfloat16));
  tensors.emplace_back("c.bias", blank({4}, mx::bfloat16));
  const auto source = open(R"({"quantization": {"group_size": 64, "bits": 4,
                               "a": {"bits": 3, "group_size": 32}, "b": {"bits": 6, "group_size": 128}}})");
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a.weight", "b.weight", "c.bias", "c.weight"}));
  EXPECT_EQ(source->find("a.weight")->shape, Shape({4, 128}));
  EXPECT_EQ(source->find("a.weight")->stored_as, "affine3g32");
  EXPECT_EQ(source->find("b.weight")->dtype, mx::bfloat16);
  EXPECT_EQ(source->find("b.weight")->bytes, size_t{4 * 48 * 4 + 2 * 4 * 2 * 2});
  EXPECT_FALSE(source->find("c.weight")->format);
  EXPECT_FALSE(source->find("a.scales"));
  const Weight w = source->load("b.weight");
  EXPECT_EQ(*w.format, (QuantFormat{QuantMode::affine, 6, 128}));
  EXPECT_EQ(w.shape, Shape({4, 256}));
  EXPECT_EQ(w.data.shape(), Shape({4, 48}));
  EXPECT_TRUE(w.scales && w.biases);
  EXPECT_TRUE(warnings.empty());
  expect_error([&] { source->load("nothing"); }, ErrorKind::not_found, {"nothing"});
}

TEST_F(Planes, EveryFormatThatExistsIsRecognised) {
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {32, 64, 128}) {
      Kit one;
      one.affine("m", 2, 256, bits, group);
      const auto source =
          one.open(fmt::format(R"({{"quantization": {{"bits": {}, "group_size": {}}}}})", bits, group));
      EXPECT_EQ(*source->find("m.weight")->format, (QuantFormat{QuantMode::affine, bits, group}));
      EXPECT_EQ(source->find("m.weight")->shape, Shape({2, 256}));
      EXPECT_TRUE(one.warnings.empty());
    }
  const QuantFormat floats[] = {
      {QuantMode::mxfp4, 4, 32}, {QuantMode::nvfp4, 4, 16}, {QuantMode::mxfp8, 8, 32}};
  for (const QuantFormat& format : floats) {
    Kit one;
    one.tensors.emplace_back("m.weight", blank({3, 2, 64 * format.bits / 32}, mx::uint32));
    one.tensors.emplace_back("m.scales", blank({3, 2, 64 / format.group_size}, mx::uint8));
    const auto source = one.open("{}");
    EXPECT_EQ(*source->find("m.weight")->format, format);
    EXPECT_EQ(source->find("m.weight")->shape, Shape({3, 2, 64}));
    EXPECT_FALSE(source->load("m.weight").biases);
  }
}

TEST_F(Planes, MapKeysMatchThroughPrefixes) {
  affine("language_model.model.layers.0.mlp.up_proj", 2, 128, 8, 32);
  affine("model.layers.1.mlp.up_proj", 2, 128, 2, 128);
  affine("lm_head", 2, 128, 8, 32);
  const auto source = open(R"({"quantization": {"group_size": 64, "bits": 4,
      "model.language_model.layers.0.mlp.up_proj": {"bits": 8, "group_size": 32},
      "language_model.model.layers.1.mlp.up_proj": {"bits": 2, "group_size": 128},
      "language_model.lm_head": {"bits": 8, "group_size": 32}}})");
  EXPECT_EQ(source->find("language_model.model.layers.0.mlp.up_proj.weight")->format->bits, 8);
  EXPECT_EQ(source->find("model.layers.1.mlp.up_proj.weight")->format->bits, 2);
  EXPECT_EQ(source->find("lm_head.weight")->format->bits, 8);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Planes, ShapesWinOverTheMap) {
  affine("a", 2, 128, 6, 64);                                     // the map says 4 bits
  affine("b", 2, 128, 8, 64);                                     // the map says dense
  tensors.emplace_back("c.weight", blank({2, 64}, mx::float16));  // the map says 4 bits by name
  const auto source =
      open(R"({"quantization": {"group_size": 64, "bits": 4, "b": false, "c": {"bits": 4}}})");
  EXPECT_EQ(source->find("a.weight")->format->bits, 6);
  EXPECT_EQ(source->find("b.weight")->format->bits * source->find("b.weight")->format->group_size, 512);
  EXPECT_FALSE(source->find("c.weight")->format);
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_NE(warnings[0].find("a: the quantisation map says affine4g64, the shapes say affine6g64"),
            std::string::npos);
  EXPECT_NE(warnings[1].find("b: the quantisation map says dense"), std::string::npos);
  EXPECT_NE(warnings[2].find("c: the quantisation map says affine4g64, the files hold it dense"),
            std::string::npos);
}

TEST_F(Planes, AmbiguousShapesNeedTheMap) {
  affine("a", 2, 128, 4, 64);
  refuse({"a.weight", "several formats", "config.json"});
}

TEST_F(Planes, OrphansAndMisfitsAreNamed) {
  const auto fresh = [&] { tensors.clear(); };
  tensors = {{"a.scales", blank({2, 2}, mx::float16)}};
  refuse({"a.scales", "a.weight"});
  fresh();
  tensors = {{"a.weight", blank({2, 16}, mx::uint32)}, {"a.biases", blank({2, 2}, mx::float16)}};
  refuse({"a.biases", "a.scales"});
  fresh();
  tensors = {{"a.weight", blank({2, 16}, mx::uint32)}};
  refuse({"a.weight", "without a.scales"});
  fresh();
  tensors = {{"a.weight", blank({2, 16}, mx::float16)},
             {"a.scales", blank({2, 2}, mx::float16)},
             {"a.biases", blank({2, 2}, mx::float16)}};
  refuse({"a.weight", "U32", "F16"});
  fresh();
  affine("a", 2, 128, 4, 32);
  tensors[2].second = blank({2, 2}, mx::float16);
  refuse({"a.biases", "[2, 4]", "[2, 2]"});
  fresh();
  affine("a", 2, 128, 4, 32);
  tensors.pop_back();
  refuse({"a.scales", "a.biases", "missing"});
  fresh();
  affine("a", 2, 128, 4, 32);
  tensors[1].second = tensors[2].second = blank({3, 4}, mx::float16);
  refuse({"a.weight", "do not belong together"});
  fresh();
  affine("a", 2, 128, 4, 32);
  tensors[1].second = tensors[2].second = blank({2, 3}, mx::float16);
  refuse({"a.weight", "fit no bits"});
  fresh();
  affine("a", 2, 128, 4, 32);
  tensors[1].second = tensors[2].second = blank({2, 4}, mx::uint8);
  refuse({"a.scales", "F16, BF16 or F32"});
}

TEST(QuantMap, RefusesWhatCannotBe) {
  const auto refuse = [](const std::string& json, const std::vector<std::string>& parts) {
    expect_error([&] { map_of(json); }, ErrorKind::bad_checkpoint, parts);
  };
  refuse(R"({"quantization": {"bits": 0, "group_size": 64}})", {"quantization.bits", "found 0"});
  refuse(R"({"quantization": {"bits": 33, "group_size": 64}})", {"quantization.bits", "33"});
  refuse(R"({"quantization": {"bits": 7, "group_size": 64}})", {"quantization", "bits 7"});
  refuse(R"({"quantization": {"bits": 4, "group_size": 48}})", {"group_size 48"});
  refuse(R"({"quantization": {"bits": 4, "group_size": 0}})", {"quantization.group_size"});
  refuse(R"({"quantization": {"bits": "4"}})", {"quantization.bits", "\"4\""});
  refuse(R"({"quantization": {"mode": "fp3"}})", {"quantization.mode", "fp3"});
  refuse(R"({"quantization": {"mode": "mxfp4", "group_size": 64, "bits": 4}})", {"group_size 64", "mxfp4"});
  refuse(R"({"quantization": {"bits": 4, "model.a": {"bits": 99}}})", {"quantization.model.a", "99"});
  refuse(R"({"quantization": [4]})", {"quantization: expected an object"});
  refuse(R"({"quantization": {"bits": 4}, "text_config": {"quantization": {"bits": 8}}})",
         {"quantization says affine4g64", "text_config.quantization says affine8g64"});
  refuse(R"({"quantization": {"bits": 4}, "quantization_config": {"bits": 8}})",
         {"quantization says affine4g64", "quantization_config says affine8g64"});
}

TEST(QuantMap, ForeignMethodsAreNotItsAffair) {
  for (const char* method : {"awq", "gptq", "fp8", "compressed-tensors"})
    EXPECT_TRUE(
        map_of(fmt::format(R"({{"quantization_config": {{"quant_method": "{}", "bits": 4}}}})", method))
            .empty());
  // An MLX conversion keeps the block of its origin beside its own.
  EXPECT_FALSE(
      map_of(R"({"quantization": {"bits": 4}, "quantization_config": {"quant_method": "mxfp4"}})").empty());
}

TEST(QuantMap, AgreesWithItsCopiesAndDefaults) {
  EXPECT_TRUE(map_of("{}").empty());
  EXPECT_TRUE(map_of(R"({"quantization": null})").empty());
  const auto both = map_of(
      R"({"quantization": {"bits": 8, "group_size": 32}, "quantization_config": {"bits": 8, "group_size": 32}})");
  EXPECT_EQ(*both.find("anything")->format, (QuantFormat{QuantMode::affine, 8, 32}));
  EXPECT_FALSE(both.find("anything")->explicitly);
  EXPECT_EQ(*map_of(R"({"quantization": {"mode": "nvfp4"}})").find("x")->format,
            (QuantFormat{QuantMode::nvfp4, 4, 16}));
  const auto mixed =
      map_of(R"({"quantization": {"bits": 4, "group_size": 64, "model.layers.0.mlp.gate": false,
                                "lm_head": true, "x.y": {"mode": "mxfp8"}, "quant_method": "mlx", "note": {}}})");
  EXPECT_FALSE(mixed.find("layers.0.mlp.gate")->format);
  EXPECT_EQ(mixed.find("x.y")->format->mode, QuantMode::mxfp8);
  EXPECT_EQ(mixed.find("lm_head")->format->bits, 4);
}

}  // namespace
}  // namespace mlxcel
