#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "text/testdata.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;

const Json& fixture() {
  static const Json json = Json::parse(testdata::load("tokenizers.json"));
  return json;
}

std::shared_ptr<const Tokenizer> small(const std::string& name) {
  for (const Json& one : fixture()["tokenizers"]) {
    if (one["name"] == name) return Tokenizer::from_json(one["json"].dump());
  }
  return nullptr;
}

std::string message(const std::function<void()>& body, ErrorKind kind) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// No piece but the last may hold a part of a character.
bool whole_characters(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const unsigned char lead = static_cast<unsigned char>(text[at]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (size == 0 || at + size > text.size()) return false;
    at += size;
  }
  return true;
}

TEST(Tokenizer, EqualsTheReferenceOnHostileTexts) {
  const auto texts = fixture()["texts"].get<std::vector<std::string>>();
  ASSERT_GE(texts.size(), 50u);
  for (const Json& one : fixture()["tokenizers"]) {
    const auto tokenizer = Tokenizer::from_json(one["json"].dump());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(texts[i], false), one["ids"][i].get<std::vector<TokenId>>())
          << one["name"] << texts[i];
      EXPECT_EQ(tokenizer->encode(texts[i], true), one["special"][i].get<std::vector<TokenId>>())
          << one["name"] << texts[i];
      EXPECT_EQ(tokenizer->encode(texts[i], false, false), one["plain"][i].get<std::vector<TokenId>>())
          << one["name"] << texts[i];
    }
  }
}

TEST(Detokenizer, PiecesJoinToTheReferencesDecode) {
  for (const Json& one : fixture()["tokenizers"]) {
    const auto tokenizer = Tokenizer::from_json(one["json"].dump());
    ASSERT_GE(one["decode"].size(), 100u);
    for (const Json& row : one["decode"]) {
      const auto ids = row[0].get<std::vector<TokenId>>();
      const bool skip = row[1].get<bool>();
      EXPECT_EQ(tokenizer->decode(ids, skip), row[2].get<std::string>()) << one["name"];
      const auto pieces = testdata::stream(tokenizer, ids, skip);
      EXPECT_EQ(testdata::joined(pieces), row[2].get<std::string>()) << one["name"] << row[0].dump();
      for (const std::string& piece : pieces) EXPECT_TRUE(whole_characters(piece)) << one["name"];
    }
  }
}

std::vector<TokenId> byte_tokens(const Tokenizer& tokenizer, const std::string& bytes) {
  std::vector<TokenId> ids;
  for (const char c : bytes) {
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.token_bytes(id) == std::string(1, c)) {
        ids.push_back(id);
        break;
      }
    }
  }
  EXPECT_EQ(ids.size(), bytes.size());
  return ids;
}

TEST(Detokenizer, AnEmojiComesWhole) {
  for (const char* name : {"byte level", "pieces"}) {
    const auto tokenizer = small(name);
    auto ids = byte_tokens(*tokenizer, "🎉");
    ids.push_back(*tokenizer->token_id("t"));
    const auto pieces = testdata::stream(tokenizer, ids);
    EXPECT_EQ(testdata::joined(pieces), "🎉t") << name;
    for (const std::string& piece : pieces) {
      EXPECT_TRUE(piece.empty() || piece == "🎉" || piece == "t" || piece == "🎉t") << name << piece;
    }
  }
}

TEST(Detokenizer, AnUnfinishedCharacterIsReplacedAsDecodeDoes) {
  for (const char* name : {"byte level", "pieces"}) {
    const auto tokenizer = small(name);
    for (const std::string bytes :
         {"\xF0\x9F\x8E", "\xF0\x9F", "\xE2\x82\x41", "\xFF\xFE", "\xC3", "\xED\xA0\x80"}) {
      const auto ids = byte_tokens(*tokenizer, bytes);
      EXPECT_EQ(testdata::joined(testdata::stream(tokenizer, ids)), tokenizer->decode(ids)) << name;
      EXPECT_NE(tokenizer->decode(ids).find("\uFFFD"), std::string::npos) << name;
    }
  }
}

TEST(Detokenizer, LeadingSpaces) {
  const auto bytes = small("byte level");
  const auto word = bytes->encode(" the", false);
  EXPECT_EQ(testdata::joined(testdata::stream(bytes, word)), " the");
  const auto pieces = small("pieces");
  const TokenId blank = *pieces->token_id("▁");
  const std::vector<TokenId> ids = {blank, *pieces->token_id("t"), blank, *pieces->token_id("x")};
  EXPECT_EQ(testdata::joined(testdata::stream(pieces, ids)), "t x");
  EXPECT_EQ(pieces->decode(ids), "t x");
  EXPECT_EQ(pieces->token_bytes(blank), " ");
}

TEST(Detokenizer, ManyTokensTakeLinearTime) {
  for (const char* name : {"byte level", "pieces", "word piece"}) {
    const auto tokenizer = small(name);
    std::vector<TokenId> ids =
        tokenizer->encode(std::string(20'000, 'q') + " " + std::string(20'000, 'z'), false);
    const auto bad = name == std::string("word piece") ? ids : byte_tokens(*tokenizer, "\xFF");
    while (ids.size() < 100'000) ids.insert(ids.end(), bad.begin(), bad.end());  // all of it invalid
    EXPECT_EQ(testdata::joined(testdata::stream(tokenizer, ids)), tokenizer->decode(ids)) << name;
  }
}

TEST(Tokenizer, IdsOutsideTheVocabularyStandForNothing) {
  const auto tokenizer = small("byte level");
  for (const TokenId id : {-1, -2147483647 - 1, 1'000'000, 2147483647, tokenizer->vocab_size()}) {
    EXPECT_EQ(tokenizer->token_text(id), "");
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{id, 40}), tokenizer->decode(std::vector<TokenId>{40}));
    EXPECT_EQ(Detokenizer(tokenizer).push(id), "");
  }
  EXPECT_NE(tokenizer->token_text(tokenizer->vocab_size() - 1), "");
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST(Tokenizer, BytesThatAreNotUtf8AreReplaced) {
  const auto tokenizer = small("byte level");
  EXPECT_EQ(tokenizer->encode("a\xFF\xC3z", false), tokenizer->encode("a\uFFFD\uFFFDz", false));
  const std::string nul("a\0b", 3);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(nul, false)), nul);
}

TEST(Tokenizer, SpecialTokens) {
  const auto tokenizer = small("byte level");
  const TokenId end = *tokenizer->token_id("<|im_end|>");
  EXPECT_TRUE(tokenizer->is_special(end));
  EXPECT_EQ(tokenizer->token_text(end), "<|im_end|>");
  EXPECT_EQ(tokenizer->encode("<|im_end|>", false), std::vector<TokenId>{end});
  EXPECT_GT(tokenizer->encode("<|im_end|>", false, false).size(), 1u);
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{end}, false), "<|im_end|>");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{end}, true), "");
}

TEST(Tokenizer, BrokenFilesAreErrors) {
  for (const std::string json :
       {"", "{", "[]", "null", "{\"model\":{}}",
        "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":3}}",
        "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"b c\"]}}"}) {
    EXPECT_NE(message([&] { Tokenizer::from_json(json); }, ErrorKind::bad_checkpoint), "") << json;
  }
  EXPECT_NE(message([&] { Tokenizer::from_json(std::string(100'000, '[')); }, ErrorKind::bad_checkpoint), "");
  Json bad_decoder = fixture()["tokenizers"][0]["json"];
  bad_decoder["decoder"] = {{"type", "Nonsense"}};
  EXPECT_NE(message([&] { Tokenizer::from_json(bad_decoder.dump()); }, ErrorKind::bad_checkpoint), "");
  Json bad_regex = fixture()["tokenizers"][0]["json"];
  bad_regex["pre_tokenizer"] =
      Json::parse(R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false})");
  EXPECT_NE(message([&] { Tokenizer::from_json(bad_regex.dump()); }, ErrorKind::bad_checkpoint), "");
}

TEST(Tokenizer, LongRunsTakeLinearTime) {
  for (const char* name : {"byte level", "pieces", "unigram", "word piece"}) {
    const auto tokenizer = small(name);
    for (const std::string unit : {"a", " ", "\n", "7", "🎉", "e\u0301", "'", "<|im_"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      const auto start = std::chrono::steady_clock::now();
      tokenizer->encode(text + "x", false);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << name << unit;
    }
  }
}

TEST(Tokenizer, MayBeUsedFromManyThreads) {
  const auto tokenizer = small("byte level");
  const std::string text = "The quick brown fox 123 <|im_end|> 日本語";
  const auto want = tokenizer->encode(text, false);
  const auto plain = tokenizer->encode(text, false, false);
  const auto fresh = small("byte level");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        wrong += fresh->encode(text, false) != want;
        wrong += fresh->encode(text, false, false) != plain;
        wrong += testdata::joined(testdata::stream(fresh, want)) != fresh->decode(want);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) / "mlxcel_text_folder";
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const std::string& name, const std::string& text) {
    AtomicFile file(path_ / name);
    file.write(text);
    file.commit();
  }
  std::shared_ptr<const Tokenizer> load() {
    Checkpoint checkpoint;
    checkpoint.path = path_;
    return Tokenizer::load(checkpoint);
  }
  std::filesystem::path path_;
};

TEST_F(Folder, ReadsItsConfigurations) {
  put("tokenizer.json", fixture()["tokenizers"][0]["json"].dump());
  put("tokenizer_config.json", R"({"bos_token": {"content": "<|endoftext|>"}, "model_max_length": 1e30})");
  put("special_tokens_map.json", R"({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})");
  put("sentence_bert_config.json", R"({"max_seq_length": 256})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->bos(), tokenizer->token_id("<|endoftext|>"));
  EXPECT_EQ(tokenizer->eos(), tokenizer->token_id("<|im_end|>"));
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->max_length(), 256);
}

TEST_F(Folder, TruncationAndPaddingOfTheFileAreOff) {
  Json json = fixture()["tokenizers"][3]["json"];
  json["truncation"] =
      Json::parse(R"({"direction":"Right","max_length":4,"strategy":"LongestFirst","stride":0})");
  json["padding"] = Json::parse(
      R"({"strategy":{"Fixed":128},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"[PAD]"})");
  put("tokenizer.json", json.dump());
  const auto ids = load()->encode("the quick brown fox jumps over the lazy dog", true);
  EXPECT_GT(ids.size(), 8u);
  EXPECT_LT(ids.size(), 40u);
}

TEST_F(Folder, CleanUpIsStreamedAsDecoded) {
  Json json = fixture()["tokenizers"][3]["json"];
  json["decoder"]["cleanup"] = false;
  put("tokenizer.json", json.dump());
  const std::string text = "do n't stop , it 's over . is n't it ? ' so ' they 've gone !";
  const auto plain = load()->decode(load()->encode(text, false));
  EXPECT_NE(plain.find(" ,"), std::string::npos);
  put("tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  const auto tokenizer = load();
  const auto ids = tokenizer->encode(text, false);
  const auto clean = tokenizer->decode(ids);
  EXPECT_EQ(clean.find(" ,"), std::string::npos);
  EXPECT_EQ(testdata::joined(testdata::stream(tokenizer, ids)), clean);
}

TEST_F(Folder, WithoutATokenizerItIsAnErrorNamingTheFile) {
  EXPECT_NE(message([&] { load(); }, ErrorKind::bad_checkpoint).find("tokenizer.json"), std::string::npos);
  put("tokenizer.json", fixture()["tokenizers"][0]["json"].dump());
  put("tokenizer_config.json", "[1]");
  EXPECT_NE(message([&] { load(); }, ErrorKind::bad_checkpoint).find("tokenizer_config.json"),
            std::string::npos);
}

}  // namespace
}  // namespace mlxcel
