// Vocabularies of folders without tokenizer.json, made by hand; real ones are in real_tokenizers_test.cpp.
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>

#include "base/base64.h"
#include "base/error.h"
#include "text/tokenizer.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

class VocabularyFolder : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        fs::temp_directory_path() /
        ("mlxcel_vocabulary_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  std::shared_ptr<const Tokenizer> load() const {
    Checkpoint checkpoint;
    checkpoint.path = path_;
    return Tokenizer::load(checkpoint);
  }
  std::string refusal() const {
    try {
      load();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  fs::path path_;
};

using Ids = std::vector<TokenId>;

// ---- protobuf by hand ----

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7F));
  return out + static_cast<char>(value);
}
std::string number(uint64_t field, uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes(uint64_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}
std::string piece(const std::string& text, float score, int kind = 1) {
  const auto raw = std::bit_cast<uint32_t>(score);
  std::string little;
  for (int i = 0; i < 4; ++i) little += static_cast<char>(raw >> (8 * i));
  return bytes(1, bytes(1, text) + varint(2 << 3 | 5) + little + number(3, static_cast<uint64_t>(kind)));
}

std::string tiny_sentencepiece(const std::string& normalizer = number(3, 1) + number(4, 0)) {
  std::string out = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    out += piece(name, 0, 6);
  }
  const char* words[] = {"\u2581h", "ell", "\u2581hell", "\u2581hello", "el", "l", "h", "e", "o", "\u2581"};
  float score = 0;
  for (const char* word : words) out += piece(word, score--);
  return out + bytes(2, number(3, 2) + number(35, 1)) + bytes(3, normalizer);
}

TEST_F(VocabularyFolder, SentencePieceBpe) {
  put("tokenizer.model", tiny_sentencepiece());
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->vocab_size(), 269);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("hello", true), (Ids{1, 262}));
  // What has no piece falls back to its bytes.
  EXPECT_EQ(tokenizer->encode("h\u00e9", false), (Ids{259, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 262}), "hello");
}

TEST_F(VocabularyFolder, AddedTokensOnTop) {
  put("tokenizer.model", tiny_sentencepiece());
  put("tokenizer_config.json", R"({"add_bos_token": false, "eos_token": "<|end|>", "added_tokens_decoder": {
      "270": {"content": "<|end|>", "special": true}}})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->vocab_size(), 271);  // one id between is unused
  EXPECT_EQ(tokenizer->eos(), 270);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("hello<|end|>", true), (Ids{262, 270}));
  EXPECT_TRUE(tokenizer->is_special(270));
}

TEST_F(VocabularyFolder, SentencePieceThatLies) {
  const std::string whole = tiny_sentencepiece();
  // Cut at any byte it either still is a message (and then lacks its pieces' end) or is refused by name.
  for (size_t size = 0; size < whole.size(); size += 7) {
    put("tokenizer.model", whole.substr(0, size));
    const std::string message = refusal();
    if (!message.empty()) {
      EXPECT_NE(message.find("tokenizer.model"), std::string::npos) << message;
    }
  }
  put("tokenizer.model", bytes(1, bytes(1, "a")).substr(0, 2) + varint(~0ull));
  EXPECT_NE(refusal().find("not a SentencePiece model"), std::string::npos) << refusal();
  put("tokenizer.model", std::string(64, '\xFF'));
  EXPECT_NE(refusal().find("not a SentencePiece model"), std::string::npos) << refusal();
  put("tokenizer.model", "");
  EXPECT_NE(refusal().find("no pieces"), std::string::npos) << refusal();
  put("tokenizer.model", piece("a", 0, 9));
  EXPECT_NE(refusal().find("type 9"), std::string::npos) << refusal();
  put("tokenizer.model", piece("a", 0) + bytes(2, number(3, 4)));
  EXPECT_NE(refusal().find("model type 4"), std::string::npos) << refusal();
}

// ---- tiktoken ----

std::string line(const std::string& token, int rank) {
  return base64_encode(std::as_bytes(std::span(token))) + " " + std::to_string(rank) + "\n";
}

/// All bytes, then "he", "ll", "hell", " h".
std::string tiny_tiktoken() {
  std::string out;
  for (int byte = 0; byte < 256; ++byte) out += line(std::string(1, static_cast<char>(byte)), byte);
  return out + line("he", 256) + line("ll", 257) + line("hell", 258) + line(" h", 259);
}

TEST_F(VocabularyFolder, TiktokenOfQwen) {
  put("qwen.tiktoken", tiny_tiktoken());
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->vocab_size(), 260 + 208);
  EXPECT_EQ(tokenizer->encode("hello", true), (Ids{258, 'o'}));
  EXPECT_EQ(tokenizer->encode("<|im_start|>he", true), (Ids{261, 256}));
  EXPECT_EQ(tokenizer->decode(Ids{258, 'o'}), "hello");
  EXPECT_EQ(tokenizer->token_bytes(200), std::string(1, '\xC8'));
}

TEST_F(VocabularyFolder, TiktokenThatLies) {
  put("qwen.tiktoken", tiny_tiktoken() + "!!! 260\n");
  EXPECT_NE(refusal().find("line 261"), std::string::npos) << refusal();
  put("qwen.tiktoken", tiny_tiktoken() + line("x!", 300));
  EXPECT_NE(refusal().find("rank 260 is missing"), std::string::npos) << refusal();
  put("qwen.tiktoken", tiny_tiktoken() + line("x!", 3));
  EXPECT_NE(refusal().find("rank 3 is given twice"), std::string::npos) << refusal();
  put("qwen.tiktoken", tiny_tiktoken() + line("he", 260));
  EXPECT_NE(refusal().find("earlier rank"), std::string::npos) << refusal();
  put("qwen.tiktoken", tiny_tiktoken() + "aGU= 99999999999999\n");
  EXPECT_NE(refusal().find("rank"), std::string::npos) << refusal();
  put("qwen.tiktoken", tiny_tiktoken());
  put("other.tiktoken", tiny_tiktoken());
  EXPECT_NE(refusal().find("two tiktoken vocabularies"), std::string::npos) << refusal();
  fs::remove(path_ / "qwen.tiktoken");
  EXPECT_NE(refusal().find("260 tokens"), std::string::npos) << refusal();
}

// ---- merges.txt and vocab.txt ----

TEST_F(VocabularyFolder, MergesFile) {
  put("vocab.json", R"({"h": 0, "e": 1, "l": 2, "o": 3, "he": 4, "ll": 5, "hell": 6, "<|endoftext|>": 7})");
  put("merges.txt", "#version: 0.2\nh e\nl l\nhe ll\n");
  put("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("hello<|endoftext|>", true), (Ids{6, 3, 7}));
  EXPECT_EQ(tokenizer->eos(), 7);
  put("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_NE(refusal().find("RobertaTokenizer"), std::string::npos) << refusal();
  put("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  put("vocab.json", R"({"h": 0, "e": 2})");
  EXPECT_NE(refusal().find("id 1 is missing"), std::string::npos) << refusal();
}

TEST_F(VocabularyFolder, WordPieces) {
  put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\n##ing\nwalk\n[\n");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("Hello walking [", true), (Ids{2, 4, 6, 5, 7, 3}));
  EXPECT_EQ(tokenizer->encode("zzz", true), (Ids{2, 1, 3}));
}

TEST_F(VocabularyFolder, NoVocabularyAtAll) {
  EXPECT_NE(refusal().find("tokenizer.json: the tokenizer's file is missing"), std::string::npos)
      << refusal();
}

TEST_F(VocabularyFolder, AddedTokenThatTakesBlanks) {
  put("tokenizer.model", tiny_sentencepiece());
  put("tokenizer_config.json", R"({"added_tokens_decoder": {"269": {"content": "<mask>", "lstrip": true}}})");
  EXPECT_NE(refusal().find("<mask>"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace mlxcel
