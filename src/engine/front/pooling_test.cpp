#include "engine/front/pooling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/formats/safetensors_writer.h"

namespace mlxcel {
namespace {

class PoolingFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    static int next = 0;
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("pooling_" + std::to_string(::getpid()) + "_" + std::to_string(next++));
    std::filesystem::create_directories(folder_ / "1_Pooling");
    checkpoint_.path = folder_;
    info_.encoder = true;
    info_.hidden = 4;
    info_.max_positions = 512;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
  }
  EmbeddingSetup setup(const std::string& word = "", int context = 0) {
    return read_embedding_setup(checkpoint_, nullptr, info_, word, context);
  }
  template <class F>
  static std::pair<ErrorKind, std::string> error_of(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return {error.kind(), error.what()};
    }
    ADD_FAILURE() << "nothing thrown";
    return {ErrorKind::internal, ""};
  }
  std::filesystem::path folder_;
  Checkpoint checkpoint_;
  ModelInfo info_;
};

TEST_F(PoolingFiles, TheCheckpointDecides) {
  EXPECT_EQ(setup().pooling, Pooling::mean);  // no file: the family's
  file("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  EXPECT_EQ(setup().pooling, Pooling::cls);
  EXPECT_EQ(setup("last").pooling, Pooling::last);  // an option wins
  file("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                           {"path": "other", "type": "sentence_transformers.models.Pooling"},
                           {"path": "2", "type": "sentence_transformers.models.Normalize"}])");
  file("other/config.json", R"({"pooling_mode_lasttoken": true, "word_embedding_dimension": 4})");
  EXPECT_EQ(setup().pooling, Pooling::last);
  ::setenv("MLXCEL_EMBEDDING_POOLING", "max", 1);
  EXPECT_EQ(setup("last").pooling, Pooling::max);
  ::unsetenv("MLXCEL_EMBEDDING_POOLING");
}

TEST_F(PoolingFiles, WhatItCannotDoIsSaid) {
  const auto kind = [&](const std::string& text) {
    file("1_Pooling/config.json", text);
    return error_of([&] { setup(); }).first;
  };
  EXPECT_EQ(kind("{"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind("[]"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind("{}"), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind(R"({"pooling_mode_weightedmean_tokens": true})"), ErrorKind::unsupported);
  EXPECT_EQ(kind(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})"),
            ErrorKind::unsupported);
  EXPECT_EQ(error_of([&] { setup("median"); }).first, ErrorKind::invalid_request);
  file("modules.json", R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  EXPECT_NE(error_of([&] { setup(); }).second.find("Dense"), std::string::npos);
  file("modules.json", R"([{"path": "../../etc", "type": "sentence_transformers.models.Pooling"}])");
  EXPECT_EQ(error_of([&] { setup(); }).first, ErrorKind::bad_checkpoint);
  file("modules.json", R"([{"path": "/etc", "type": "sentence_transformers.models.Pooling"}])");
  EXPECT_EQ(error_of([&] { setup(); }).first, ErrorKind::bad_checkpoint);
  file("modules.json", R"([1, {"type": 3}])");
  EXPECT_THROW(setup(), Error);
}

TEST_F(PoolingFiles, TheShortestLimitHolds) {
  EXPECT_EQ(setup().max_input, 512);
  EXPECT_EQ(setup("", 100).max_input, 100);
  EXPECT_EQ(error_of([&] { setup("", 513); }).first, ErrorKind::invalid_request);
  info_.max_positions = 0;
  EXPECT_EQ(setup().max_input, 8192);
}

TEST_F(PoolingFiles, AGgufFileNamesItsPooling) {
  checkpoint_.format = Checkpoint::Format::gguf;
  const auto of = [&](uint64_t type) {
    auto metadata = std::make_shared<GgufMetadata>();
    (*metadata)["bert.pooling_type"] = GgufValue{type};
    checkpoint_.gguf = metadata;
    return setup().pooling;
  };
  EXPECT_EQ(setup().pooling, Pooling::mean);  // no metadata at all
  EXPECT_EQ(of(1), Pooling::mean);
  EXPECT_EQ(of(2), Pooling::cls);
  EXPECT_EQ(of(3), Pooling::last);
  EXPECT_EQ(of(0), Pooling::mean);  // none: the family's
}

TEST(Pool, Arithmetic) {
  const std::vector<float> hidden = {1, 2, 3, 10, 20, -30, 4, 5, 6};
  EXPECT_EQ(pool(hidden, 3, Pooling::mean, 0, false), (std::vector<float>{5, 9, -7}));
  EXPECT_EQ(pool(hidden, 3, Pooling::cls, 0, false), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(pool(hidden, 3, Pooling::last, 2, false), (std::vector<float>{4, 5}));
  EXPECT_EQ(pool(hidden, 3, Pooling::max, 0, false), (std::vector<float>{10, 20, 6}));
  const auto unit = pool(hidden, 3, Pooling::last, 2, true);  // of the kept entries
  EXPECT_NEAR(unit[0] * unit[0] + unit[1] * unit[1], 1.0, 1e-6);
  EXPECT_EQ(pool(std::vector<float>{0, 0}, 2, Pooling::cls, 0, true), (std::vector<float>{0, 0}));
  EXPECT_THROW(pool(std::vector<float>{std::nanf(""), 0}, 2, Pooling::cls, 0, false), Error);
}

TEST_F(PoolingFiles, DenseLayersFollowThePooling) {
  file("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                           {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                           {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  file("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  const auto dense = [&](int in, const std::string& activation) {
    file(
        "2_Dense/config.json",
        fmt::format(R"({{"in_features": {}, "out_features": 2, "bias": false, "activation_function": "{}"}})",
                    in, activation));
  };
  const std::vector<float> weight{1, 0, 0, 2, 0, 1, 1, 0};
  array values(weight.data(), {2, 4}, mx::float32);
  values.eval();
  std::filesystem::create_directories(folder_ / "2_Dense");
  write_safetensors(folder_ / "2_Dense" / "model.safetensors", {{"linear.weight", values}});
  dense(4, "torch.nn.modules.linear.Identity");
  const auto layers = setup().dense;
  ASSERT_EQ(layers.size(), 1u);
  const std::vector<float> hidden{1, 2, 3, 4, 3, 2, 1, 0};  // mean 2 2 2 2
  EXPECT_EQ(pool(hidden, 4, Pooling::mean, 0, false, layers), (std::vector<float>{6, 4}));
  EXPECT_EQ(pool(hidden, 4, Pooling::mean, 1, false, layers), (std::vector<float>{6}));
  dense(4, "torch.nn.modules.activation.Tanh");
  EXPECT_FLOAT_EQ(pool(hidden, 4, Pooling::mean, 0, false, setup().dense)[1], std::tanh(4.0f));
  dense(3, "");
  EXPECT_NE(error_of([&] { setup(); }).second.find("in_features"), std::string::npos);
  dense(4, "torch.nn.modules.activation.GELU");
  EXPECT_EQ(error_of([&] { setup(); }).first, ErrorKind::unsupported);
}

}  // namespace
}  // namespace mlxcel
