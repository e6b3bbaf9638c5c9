// Real files where the machine has them (MLXCEL_TEST_CACHE or the model store); skipped elsewhere.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/checkpoint.h"
#include "tensor/external.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> cached(const char* name) {
  std::vector<fs::path> roots;
  if (const char* cache = std::getenv("MLXCEL_TEST_CACHE")) roots.emplace_back(cache);
  if (const char* home = std::getenv("HOME")) roots.push_back(fs::path(home) / ".cache/mlxcel/models");
  for (const fs::path& root : roots)
    for (const auto& path : {root / name, root / fs::path(name).filename()})
      if (fs::exists(path)) return path;
  return std::nullopt;
}

TEST(RealFiles, SmolLm2) {
  const auto path = cached("HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is not in the test cache";
  const Checkpoint c = open_checkpoint(*path);
  EXPECT_EQ(c.config.get<std::string>("model_type"), "llama");
  EXPECT_EQ(c.config.get<int>("hidden_size"), 576);
  EXPECT_EQ(c.config.get<int>("num_hidden_layers"), 30);
  EXPECT_EQ(c.config.get<int>("num_attention_heads"), 9);
  EXPECT_EQ(c.config.get<int>("num_key_value_heads"), 3);
  EXPECT_EQ(c.config.get<int>("head_dim"), 64);
  EXPECT_EQ(c.config.get<int>("intermediate_size"), 1536);
  EXPECT_EQ(c.config.get<int>("vocab_size"), 49152);
  EXPECT_EQ(c.config.get<float>("rope_theta"), 1e5f);
  EXPECT_EQ(c.config.get<float>("rms_norm_eps"), 1e-5f);
  EXPECT_TRUE(c.config.get<bool>("tie_word_embeddings"));
  EXPECT_FALSE(c.config.has("rope_scaling"));
  EXPECT_EQ(c.eos_ids, std::vector<int>{2});
  EXPECT_EQ(c.source->names().size(), 272u);
  size_t bytes = 0;
  for (const std::string& name : c.source->names()) {
    const auto info = c.source->find(name);
    ASSERT_TRUE(info);
    const Weight w = c.source->load(name);
    EXPECT_EQ(w.shape, info->shape) << name;
    EXPECT_EQ(w.format, info->format) << name;
    EXPECT_EQ((w.scales ? *w.scales : w.data).dtype(), info->dtype) << name;
    bytes += info->bytes;
  }
  EXPECT_LT(bytes, c.file_bytes);
  EXPECT_GT(bytes, c.file_bytes - 2'000'000);
  EXPECT_EQ(c.source->find("model.embed_tokens.weight")->stored_as, "Q8_0");
}

TEST(RealFiles, MiniLm) {
  const auto path = cached("sentence-transformers/all-MiniLM-L6-v2");
  if (!path) GTEST_SKIP() << "all-MiniLM-L6-v2 is not in the test cache";
  const Checkpoint c = open_checkpoint(*path);
  EXPECT_EQ(c.config.get<std::string>("model_type"), "bert");
  EXPECT_TRUE(c.warnings.empty());
  const Weight w = c.source->load("embeddings.word_embeddings.weight");
  EXPECT_EQ(w.shape, Shape({30522, 384}));
  EXPECT_EQ(w.data.dtype(), mx::float32);
  for (const std::string& name : c.source->names())
    EXPECT_EQ(c.source->load(name).shape, c.source->find(name)->shape);
}

}  // namespace
}  // namespace mlxcel
