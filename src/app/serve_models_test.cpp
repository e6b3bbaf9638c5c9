// Presets of a router: what a file says, and what is refused with its line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "app/serve_models.h"

namespace mlxcel::app {
namespace {

std::string refusal(const std::string& text) {
  try {
    read_presets(text, "p.ini");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Presets, SectionsBecomeFlags) {
  const auto file = read_presets(R"(version = 1
stop-timeout = 3
; a comment
[*]
temp = 0.5
LLAMA_ARG_CTX_SIZE = 4096

[small]
model = owner/name:Q4_0
np = 2
load-on-startup = true
alias = "a,b"
[owner/other]
top_k=7
)",
                                 "p.ini");
  EXPECT_EQ(file.stop_seconds, 3);
  EXPECT_EQ(file.common, (std::vector<std::string>{"--temp=0.5", "--ctx-size=4096"}));
  ASSERT_EQ(file.models.size(), 2u);
  EXPECT_EQ(file.models[0].model, "owner/name:Q4_0");
  EXPECT_TRUE(file.models[0].load_on_startup);
  EXPECT_EQ(file.models[0].words, (std::vector<std::string>{"--parallel=2", "--alias=a,b"}));
  EXPECT_EQ(file.models[1].words, (std::vector<std::string>{"--top-k=7"}));
}

TEST(Presets, WhatIsNotAKeyIsRefusedWithItsLine) {
  EXPECT_NE(refusal("[a]\nport = 1\n").find("p.ini:2: port"), std::string::npos);
  EXPECT_NE(refusal("[a]\napi-key = x\n").find("p.ini:2"), std::string::npos);
  EXPECT_NE(refusal("temp = 1\n").find("before the first section"), std::string::npos);
  EXPECT_NE(refusal("[a\n").find("p.ini:1"), std::string::npos);
  EXPECT_NE(refusal("[a]\nnonsense\n").find("key = value"), std::string::npos);
  EXPECT_NE(refusal("[a]\n[a]\n").find("a second section"), std::string::npos);
  EXPECT_NE(refusal("version = 2\n").find("version"), std::string::npos);
  EXPECT_NE(refusal("[a]\nload-on-startup = maybe\n").find("true or false"), std::string::npos);
  EXPECT_NE(refusal("stop-timeout = soon\n").find("stop-timeout"), std::string::npos);
  EXPECT_NE(refusal("[*]\nmodel = x\n").find("belongs to one model"), std::string::npos);
}

TEST(Presets, ModelsOfAFolderAndTheirFlags) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / "mlxcel-find-models";
  fs::remove_all(root);
  fs::create_directories(root / "store");
  fs::create_directories(root / "models/one");
  fs::create_directories(root / "models/empty");
  std::ofstream(root / "models/one/config.json") << "{}";
  std::ofstream(root / "models/two.gguf") << "GGUF";
  std::ofstream(root / "outside.gguf") << "GGUF";
  fs::create_symlink(root / "outside.gguf", root / "models/link.gguf");
  ServeFlags flags;
  flags.words = {"--models-dir",
                 (root / "models").string(),
                 "--model-store-root",
                 (root / "store").string(),
                 "--top-k",
                 "9"};
  flags.router.folder = (root / "models").string();
  flags.model.models_dir = (root / "store").string();
  const auto presets =
      read_presets("[*]\ntemp = 0.25\ntop-k = 5\n[one]\nalias = uno\nload-on-startup = 1\n", "p.ini");
  const auto models = find_models(flags, presets);
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].options.model_id, "one");
  EXPECT_EQ(models[0].options.aliases, std::vector<std::string>{"uno"});
  EXPECT_EQ(models[0].options.sampling.temperature, 0.25f);
  EXPECT_EQ(models[0].options.sampling.top_k, 9);  // the command line wins
  EXPECT_TRUE(models[0].load_on_startup);
  EXPECT_FALSE(models[0].removable);
  EXPECT_EQ(models[1].options.model_id, "two");
  EXPECT_EQ(models[1].source, "models_dir");
  fs::remove_all(root);
}

}  // namespace
}  // namespace mlxcel::app
