// Embeddings on the fake encoder.
#include <cmath>
#include <future>

#include "engine/loop/engine_fixture.h"

namespace mlxcel {
namespace {

using testing::FakeModel;

using EmbeddingTest = testing::FakeEngineTest;

TEST_F(EmbeddingTest, Embeds) {
  EngineOptions options;
  options.prefill_chunk = 16;
  auto engine = make(options, 64, true);
  EXPECT_EQ(engine->max_input(), 64);
  EmbedRequest r;
  r.normalize = false;
  r.inputs = {{10, 20, 30}, {5}, prompt(40, 1), {7, 8}};
  Embeddings e = engine->embed(r);
  ASSERT_EQ(e.vectors.size(), 4u);
  EXPECT_EQ(e.vectors[0], (std::vector<float>{20.0f, 1.0f, 3.0f, 1.0f}));
  EXPECT_EQ(e.vectors[1], (std::vector<float>{5.0f, 0.0f, 1.0f, 1.0f}));
  EXPECT_EQ(e.vectors[3], (std::vector<float>{7.5f, 0.5f, 2.0f, 1.0f}));
  EXPECT_EQ(e.prompt_tokens, 46);
  r.pooling = "cls";
  EXPECT_EQ(engine->embed(r).vectors[0][0], 10.0f);
  r.pooling = "last";
  EXPECT_EQ(engine->embed(r).vectors[0][0], 30.0f);
  r.pooling = "max";
  EXPECT_EQ(engine->embed(r).vectors[0], (std::vector<float>{30.0f, 2.0f, 3.0f, 1.0f}));
  r.pooling = "";
  r.normalize = true;
  r.dimensions = 2;
  e = engine->embed(r);
  ASSERT_EQ(e.vectors[0].size(), 2u);
  EXPECT_NEAR(e.vectors[0][0], 20.0 / std::sqrt(401.0), 1e-6);
  EXPECT_GT(engine->stats().embedded_inputs, 0u);
}

TEST_F(EmbeddingTest, EmbeddingErrors) {
  auto engine = make({}, 8, true);
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {}}); }).param(), "input");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{}}}); }).param(), "input");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}}, .pooling = "median"}); }).param(), "pooling");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}}, .dimensions = 5}); }).param(), "dimensions");
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{FakeModel::kVocab}}}); }).param(), "input");
  const Error longer = error_of([&] { engine->embed({.inputs = {{1}, prompt(9, 1)}}); });
  EXPECT_NE(std::string(longer.what()).find("input[1] has 9 tokens"), std::string::npos) << longer.what();
  const Embeddings cut = engine->embed({.inputs = {{1}, prompt(9, 1)}, .truncate = true});
  EXPECT_EQ(cut.truncated, 1);
  EXPECT_EQ(cut.prompt_tokens, 9);
  EXPECT_EQ(error_of([&] { start(*engine, request({1}, 1)); }).kind(), ErrorKind::unsupported);
}

TEST_F(EmbeddingTest, OneBadEmbeddingInputFailsItsJobAlone) {
  auto engine = make({}, 64, true);
  std::vector<std::future<bool>> good;
  control_->step_ms = 3;
  for (int i = 0; i < 6; ++i)
    good.push_back(std::async(std::launch::async, [&, i] {
      return engine->embed({.inputs = {{i + 1}}, .normalize = false}).vectors[0][0] ==
             static_cast<float>(i + 1);
    }));
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{1}, {FakeModel::kThrow}}}); }).kind(),
            ErrorKind::internal);
  EXPECT_EQ(error_of([&] { engine->embed({.inputs = {{FakeModel::kNan}, {1}}}); }).kind(),
            ErrorKind::internal);
  for (auto& g : good) EXPECT_TRUE(g.get());
  EXPECT_FALSE(engine->failure());
}

}  // namespace
}  // namespace mlxcel
