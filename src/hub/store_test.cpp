#include "hub/store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "base/error.h"

namespace mlxcel {
namespace {
namespace fs = std::filesystem;

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("mlxcel-store-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    for (const char* name :
         {"MLXCEL_MODELS_DIR", "HF_HUB_CACHE", "HF_HOME", "MLXCEL_DEFAULT_ORG", "MLXCEL_CACHE_DIR"})
      ::unsetenv(name);
    ::setenv("HF_HUB_CACHE", (root_ / "hf").c_str(), 1);
    options_.store = root_ / "store";
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text = "x") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string resolve(const std::string& text) {
    return fs::relative(resolve_model(parse_reference(text), options_), root_).string();
  }

  fs::path root_;
  ResolveOptions options_;
};

ErrorKind kind_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

TEST_F(StoreTest, FormsOfReferences) {
  EXPECT_EQ(parse_reference("a/b").repo(), "a/b");
  EXPECT_EQ(parse_reference("a/b:Q4_K_M").quant, "Q4_K_M");
  EXPECT_EQ(parse_reference("Some-Name").repo(), "mlx-community/Some-Name");
  EXPECT_TRUE(parse_reference("SmolLM2-135M-Instruct").is_default_model());
  EXPECT_EQ(parse_reference(root_.string()).path, root_);
  for (const char* bad :
       {"", "a/b/c", "../no-such-folder", "a/..", "a/b:", "http://host/x", "a b", "/no/such/path", "a/b:x/y"})
    EXPECT_EQ(kind_of([&] { parse_reference(bad); }), ErrorKind::invalid_request) << bad;
}

TEST_F(StoreTest, DefaultOrgFromTheEnvironment) {
  ::setenv("MLXCEL_DEFAULT_ORG", "acme", 1);
  EXPECT_EQ(parse_reference("thing").repo(), "acme/thing");
  ::setenv("MLXCEL_DEFAULT_ORG", "a/b", 1);
  EXPECT_EQ(kind_of([] { parse_reference("thing"); }), ErrorKind::invalid_request);
  ::unsetenv("MLXCEL_DEFAULT_ORG");
}

TEST_F(StoreTest, PrefersSafetensorsThenQ4KM) {
  write("store/o/both/config.json");
  write("store/o/both/both.Q8_0.gguf");
  write("store/o/quants/m-Q2_K.gguf");
  write("store/o/quants/m-Q4_K_M.gguf");
  write("store/o/plain/b.gguf");
  write("store/o/plain/a.gguf");
  write("store/o/plain/mmproj-a.gguf");
  EXPECT_EQ(resolve("o/both"), "store/o/both");
  EXPECT_EQ(resolve("o/both:q8_0"), "store/o/both/both.Q8_0.gguf");
  EXPECT_EQ(resolve("o/quants"), "store/o/quants/m-Q4_K_M.gguf");
  EXPECT_EQ(resolve("o/quants:Q2_K"), "store/o/quants/m-Q2_K.gguf");
  EXPECT_EQ(resolve("o/plain"), "store/o/plain/a.gguf");
  EXPECT_EQ(kind_of([&] { resolve("o/quants:Q3_K"); }), ErrorKind::not_found);
}

TEST_F(StoreTest, QuantNamesTheWholeWord) {
  write("store/o/m/m.Q4_K_M.gguf");
  write("store/o/m/m.Q4_K_S.gguf");
  write("store/o/m/m.Q4_0.gguf");
  EXPECT_EQ(resolve("o/m:Q4_K_S"), "store/o/m/m.Q4_K_S.gguf");
  EXPECT_EQ(resolve("o/m:q4_0"), "store/o/m/m.Q4_0.gguf");
}

TEST_F(StoreTest, HuggingFaceCacheBeforeStore) {
  write("hf/models--o--n/refs/main", "abc123\n");
  write("hf/models--o--n/snapshots/abc123/config.json");
  write("store/o/n/config.json");
  EXPECT_EQ(resolve("o/n"), "hf/models--o--n/snapshots/abc123");
  options_.revision = "other";
  EXPECT_EQ(kind_of([&] { resolve("o/n"); }), ErrorKind::not_found);
  options_.revision = "abc123";
  EXPECT_EQ(resolve("o/n"), "hf/models--o--n/snapshots/abc123");
}

TEST_F(StoreTest, MissingNamesWhereItLooked) {
  try {
    resolve("SmolLM2-135M-Instruct");
    FAIL() << "found a model in an empty store";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("fetch_model.sh"), std::string::npos) << text;
    EXPECT_NE(text.find((root_ / "store").string()), std::string::npos) << text;
  }
}

TEST_F(StoreTest, FolderWithSeveralModelsAsksForOne) {
  write("folder/a.gguf");
  write("folder/b.gguf");
  EXPECT_EQ(kind_of([&] { resolve((root_ / "folder").string()); }), ErrorKind::invalid_request);
  fs::remove(root_ / "folder/b.gguf");
  EXPECT_EQ(resolve((root_ / "folder").string()), "folder/a.gguf");
}

TEST_F(StoreTest, SplitSetIsOneModel) {
  write("store/o/split/m-Q4_0-00002-of-00002.gguf", "12");
  write("store/o/split/m-Q4_0-00001-of-00002.gguf", "345");
  EXPECT_EQ(resolve("o/split"), "store/o/split/m-Q4_0-00001-of-00002.gguf");
  const auto models = list_models(root_ / "store");
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].reference, "o/split:Q4_0");
  EXPECT_EQ(models[0].bytes, 5u);
}

TEST_F(StoreTest, ListsFoldersBareNamesAndQuants) {
  write("store/bare/config.json", "12");
  write("store/o/n/config.json", "1");
  write("store/o/n/model.safetensors", "234");
  write("store/o/g/g.Q8_0.gguf");
  write("store/o/empty/readme.md");
  write("store/o/weights/model.safetensors", "5");
  const auto models = list_models(root_ / "store");
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].reference, "bare");
  EXPECT_EQ(models[1].reference, "o/g:Q8_0");
  EXPECT_EQ(models[2].reference, "o/n");
  EXPECT_EQ(models[2].bytes, 4u);
  EXPECT_TRUE(models[2].modified.has_value());
  EXPECT_TRUE(list_models(root_ / "nowhere").empty());
  const auto with_weights = list_models(root_ / "store", true);
  ASSERT_EQ(with_weights.size(), 4u);
  EXPECT_EQ(with_weights[3].reference, "o/weights");
  EXPECT_EQ(with_weights[3].bytes, 1u);
}

}  // namespace
}  // namespace mlxcel
