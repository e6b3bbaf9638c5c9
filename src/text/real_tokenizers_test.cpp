// Real tokenizers where the machine has them (MLXCEL_TEST_CACHE or the model store); skipped elsewhere. The
// digests were taken of the reference implementations' ids over the texts in testdata/tokenizers.json.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/chat_template.h"
#include "text/testdata.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;

/// FNV-1a over the ids, each list ended by -1.
std::string digest(const Tokenizer& tokenizer, bool add_special, bool parse_special = true,
                   const char* texts = "texts") {
  uint64_t value = 0xCBF29CE484222325u;
  const auto add = [&](TokenId id) {
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3u;
    }
  };
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  for (const Json& text : fixture[texts]) {
    for (const TokenId id : tokenizer.encode(text.get<std::string>(), add_special, parse_special)) add(id);
    add(-1);
  }
  return fmt::format("{:016x}", value);
}

void expect_streams(const std::shared_ptr<const Tokenizer>& tokenizer) {
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  for (const Json& text : fixture["texts"]) {
    const auto ids = tokenizer->encode(text.get<std::string>(), false);
    EXPECT_EQ(testdata::joined(testdata::stream(tokenizer, ids, false)), tokenizer->decode(ids, false))
        << text;
  }
}

TEST(RealTokenizers, SmolLm2FromItsGguf) {
  const auto path = testdata::cached("HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!path) GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is not in the test cache";
  const Checkpoint checkpoint = open_checkpoint(*path);
  const auto tokenizer = Tokenizer::load(checkpoint);
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_FALSE(tokenizer->adds_bos());
  const std::vector<TokenId> question = {1780, 314, 260, 3575, 282, 4649, 47};
  EXPECT_EQ(tokenizer->encode("What is the capital of France?", true), question);
  EXPECT_EQ(tokenizer->decode(question), "What is the capital of France?");
  EXPECT_EQ(digest(*tokenizer, false), "4d9d8b71cd2e7111");
  expect_streams(tokenizer);
  const auto chat = ChatTemplate::load(checkpoint, *tokenizer);
  ASSERT_NE(chat, nullptr);
  EXPECT_EQ(
      chat->render({.messages_json = R"([{"role": "user", "content": "Hi"}])"}),
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(RealTokenizers, MiniLm) {
  const auto path = testdata::cached("sentence-transformers/all-MiniLM-L6-v2");
  if (!path) GTEST_SKIP() << "all-MiniLM-L6-v2 is not in the test cache";
  Checkpoint checkpoint;
  checkpoint.path = *path;
  const auto tokenizer = Tokenizer::load(checkpoint);
  EXPECT_EQ(tokenizer->vocab_size(), 30522);
  EXPECT_EQ(tokenizer->max_length(), 256);
  EXPECT_EQ(tokenizer->encode("hello world", true), (std::vector<TokenId>{101, 7592, 2088, 102}));
  EXPECT_EQ(digest(*tokenizer, true), "c6be1201c6a51353");
  expect_streams(tokenizer);
}

TEST(RealTokenizers, PublishedOnes) {
  int compared = 0;
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  for (const auto& [name, want] : fixture["real"].items()) {
    const auto folder = testdata::cached("tokenizers/" + name);
    if (!folder) continue;
    Checkpoint checkpoint;
    checkpoint.path = *folder;
    const auto tokenizer = Tokenizer::load(checkpoint);
    EXPECT_EQ(digest(*tokenizer, true), want.get<std::string>()) << name;
    expect_streams(tokenizer);
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "no folder tokenizers/NAME with a tokenizer.json in the test cache";
}

/// SentencePiece, tiktoken and tekken files, against sentencepiece and tiktoken
/// (tests/real/fetch_tokenizers.sh).
TEST(RealTokenizers, PublishersOwnFormats) {
  int compared = 0;
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  for (const auto& [name, want] : fixture["files"].items()) {
    const auto folder = testdata::cached("tokenizers/" + name);
    if (!folder) continue;
    Checkpoint checkpoint;
    checkpoint.path = *folder;
    const auto tokenizer = Tokenizer::load(checkpoint);
    EXPECT_EQ(digest(*tokenizer, false, false), want.get<std::string>()) << name;
    expect_streams(tokenizer);
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "tests/real/fetch_tokenizers.sh has not been run";
}

/// Scripts, marks, controls and special tokens in disorder, against tiktoken, sentencepiece and
/// mistral-common.
TEST(RealTokenizers, PublishersOwnFormatsOverHostileTexts) {
  namespace fs = std::filesystem;
  int compared = 0;
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  const fs::path scratch = fs::path(::testing::TempDir()) / fmt::format("hostile_{}", ::getpid());
  for (const auto& [name, want] : fixture["hostile"].items()) {
    const bool kimi = name == "kimi";  // Llama 3's ranks under Kimi's name
    const auto folder = testdata::cached("tokenizers/" + (kimi ? std::string("file_llama3") : name));
    if (!folder) continue;
    Checkpoint checkpoint;
    checkpoint.path = *folder;
    if (kimi) {
      fs::create_directories(scratch);
      fs::copy_file(*folder / "tokenizer.model", scratch / "tiktoken.model",
                    fs::copy_options::overwrite_existing);
      std::ofstream(scratch / "tokenizer_config.json") << R"({"tokenizer_class": "TikTokenTokenizer"})";
      checkpoint.path = scratch;
    }
    const auto tokenizer = Tokenizer::load(checkpoint);
    EXPECT_EQ(digest(*tokenizer, false, false, "hostile_texts"), want.get<std::string>()) << name;
    ++compared;
  }
  fs::remove_all(scratch);
  if (compared == 0) GTEST_SKIP() << "tests/real/fetch_tokenizers.sh has not been run";
}

TEST(RealTokenizers, SpecialTokensOfPublishersOwnFormats) {
  const auto load = [](const char* name) -> std::shared_ptr<const Tokenizer> {
    const auto folder = testdata::cached(std::string("tokenizers/") + name);
    if (!folder) return nullptr;
    Checkpoint checkpoint;
    checkpoint.path = *folder;
    return Tokenizer::load(checkpoint);
  };
  const auto llama3 = load("file_llama3"), tekken = load("file_tekken_v3"), qwen = load("file_qwen"),
             mistral = load("file_mistral_v3");
  if (!llama3 || !tekken || !qwen || !mistral)
    GTEST_SKIP() << "tests/real/fetch_tokenizers.sh has not been run";
  EXPECT_EQ(llama3->vocab_size(), 128256);
  EXPECT_EQ(llama3->token_id("<|eot_id|>"), 128009);
  EXPECT_EQ(llama3->encode("hi<|eot_id|>", true), (std::vector<TokenId>{128000, 6151, 128009}));
  EXPECT_EQ(tekken->vocab_size(), 131072);
  EXPECT_EQ(tekken->token_id("[INST]"), 3);
  EXPECT_EQ(tekken->encode("", true), (std::vector<TokenId>{1}));
  EXPECT_EQ(qwen->vocab_size(), 151851);
  EXPECT_EQ(qwen->token_id("<|im_end|>"), 151645);
  EXPECT_EQ(mistral->vocab_size(), 32768);
  EXPECT_EQ(mistral->bos(), 1);
  EXPECT_TRUE(mistral->is_special(3));  // [INST]
}

}  // namespace
}  // namespace mlxcel
