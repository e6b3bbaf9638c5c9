#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/testdata.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;
using Integers = std::vector<int64_t>;

const std::string kKey = "tokenizer.ggml.";

std::string error_of(GgufMetadata metadata) {
  try {
    Tokenizer::load(testdata::gguf(std::move(metadata)));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

GgufValue strings(Strings list) { return {GgufArray(std::move(list))}; }
GgufValue integers(Integers list) { return {GgufArray(std::move(list))}; }
GgufValue text(std::string value) { return {std::move(value)}; }
GgufValue id(uint64_t value) { return {value}; }

/// Every byte a token, then "he", "ll", "hell", "hello", a control and a user-defined token.
GgufMetadata byte_level() {
  static const Json fixture = Json::parse(testdata::load("tokenizers.json"))["tokenizers"][0]["json"];
  Strings tokens;
  for (const auto& [token, at] : fixture["model"]["vocab"].items()) {
    if (at.get<size_t>() >= 3 && at.get<size_t>() < 259) tokens.push_back(token);
  }
  EXPECT_EQ(tokens.size(), 256u);
  for (const char* more : {"he", "ll", "hell", "hello", "<|im_end|>", "<think>", "<ctl>"})
    tokens.push_back(more);
  Integers types(256 + 4, 1);
  for (const int type : {1, 4, 3}) types.push_back(type);  // <|im_end|> wrongly marked as ordinary
  return {{kKey + "model", text("gpt2")},
          {kKey + "pre", text("smollm")},
          {kKey + "tokens", strings(tokens)},
          {kKey + "token_type", integers(types)},
          {kKey + "merges", strings({"h e", "l l", "he ll", "hell o"})},
          {kKey + "eos_token_id", id(260)}};
}

TEST(GgufVocabulary, ByteLevel) {
  const auto tokenizer = Tokenizer::load(testdata::gguf(byte_level()));
  EXPECT_EQ(tokenizer->vocab_size(), 263);
  EXPECT_EQ(tokenizer->encode("hello", true), std::vector<TokenId>{259});
  EXPECT_EQ(tokenizer->eos(), 260);
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_TRUE(tokenizer->is_special(260));
  EXPECT_FALSE(tokenizer->is_special(261));
  EXPECT_EQ(tokenizer->encode("hello<|im_end|>", false), (std::vector<TokenId>{259, 260}));
  EXPECT_GT(tokenizer->encode("<ctl>", false, false).size(), 1u);
  EXPECT_EQ(tokenizer->encode("<think>", false, false), std::vector<TokenId>{261});  // user-defined: always
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{261, 262}), "<think>");
  EXPECT_EQ(tokenizer->encode("hello 12", false).size(), 4u);  // digits stand alone
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("hello 日本\n🎉", false)), "hello 日本\n🎉");
}

TEST(GgufVocabulary, BosAndEosAreAddedAsTheFileSays) {
  GgufMetadata metadata = byte_level();
  metadata[kKey + "add_bos_token"] = {true};
  metadata[kKey + "add_eos_token"] = {true};
  metadata[kKey + "bos_token_id"] = id(262);
  const auto tokenizer = Tokenizer::load(testdata::gguf(metadata));
  EXPECT_EQ(tokenizer->encode("hello", true), (std::vector<TokenId>{262, 259, 260}));
  EXPECT_EQ(tokenizer->encode("hello", false), std::vector<TokenId>{259});
  EXPECT_TRUE(tokenizer->adds_bos());
  metadata.erase(kKey + "bos_token_id");
  EXPECT_NE(error_of(metadata).find("bos_token_id"), std::string::npos);
}

TEST(GgufVocabulary, WhatIsWrongIsNamed) {
  const auto with = [](const std::string& key, GgufValue value) {
    GgufMetadata metadata = byte_level();
    metadata[kKey + key] = std::move(value);
    return error_of(std::move(metadata));
  };
  const auto without = [](const std::string& key) {
    GgufMetadata metadata = byte_level();
    metadata.erase(kKey + key);
    return error_of(std::move(metadata));
  };
  EXPECT_NE(with("pre", text("never-heard-of")).find("never-heard-of"), std::string::npos);
  EXPECT_NE(with("model", text("unheard")).find("unheard"), std::string::npos);
  EXPECT_NE(with("eos_token_id", id(263)).find("eos_token_id"), std::string::npos);
  EXPECT_NE(with("tokens", strings({"a", "b", "a"})).find("token"), std::string::npos);
  EXPECT_NE(with("tokens", text("a")).find("tokens"), std::string::npos);
  EXPECT_NE(with("token_type", integers({1})).find("token_type"), std::string::npos);
  EXPECT_NE(with("token_type", integers(Integers(263, 9))).find("token_type"), std::string::npos);
  EXPECT_NE(with("merges", strings({"h x"})).find("merges"), std::string::npos);
  EXPECT_NE(with("merges", strings({"hx"})).find("merges"), std::string::npos);
  EXPECT_NE(with("scores", {GgufArray(std::vector<double>{1.0})}).find("scores"), std::string::npos);
  EXPECT_NE(with("add_bos_token", text("yes")).find("add_bos_token"), std::string::npos);
  EXPECT_NE(without("merges").find("merges"), std::string::npos);
  EXPECT_NE(without("pre").find("pre"), std::string::npos);
  EXPECT_NE(without("tokens").find("tokens"), std::string::npos);
  EXPECT_NE(without("model").find("model"), std::string::npos);
  GgufMetadata metadata = byte_level();
  std::get<Strings>(std::get<GgufArray>(metadata[kKey + "tokens"].value))[7] = "\xFF\xFE";
  EXPECT_NE(error_of(metadata).find("UTF-8"), std::string::npos);
  std::get<Strings>(std::get<GgufArray>(metadata[kKey + "tokens"].value))[7] = std::string(100'000, 'x');
  EXPECT_NE(error_of(metadata).find("bytes"), std::string::npos);
}

GgufMetadata sentence_piece(const Json& vocabulary) {
  return {{kKey + "model", text(vocabulary["model"].get<std::string>())},
          {kKey + "tokens", strings(vocabulary["tokens"].get<Strings>())},
          {kKey + "scores", {GgufArray(vocabulary["scores"].get<std::vector<double>>())}},
          {kKey + "token_type", integers(vocabulary["types"].get<Integers>())},
          {kKey + "bos_token_id", id(1)},
          {kKey + "eos_token_id", id(2)},
          {kKey + "unknown_token_id", id(0)}};
}

TEST(GgufVocabulary, SentencePieceEncodesAsItsLibraryDoes) {
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  for (const Json& vocabulary : fixture["vocabularies"]) {
    if (vocabulary["model"] != "llama") continue;
    const auto tokenizer = Tokenizer::load(testdata::gguf(sentence_piece(vocabulary)));
    const auto texts = vocabulary["texts"].get<Strings>();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto want = vocabulary["ids"][i].get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer->encode(texts[i], false, false), want) << texts[i];
      auto whole = tokenizer->encode(texts[i], true, false);
      ASSERT_FALSE(whole.empty());
      EXPECT_EQ(whole.front(), 1);
    }
    for (const Json& row : vocabulary["decode"]) {
      const auto ids = row[0].get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer->decode(ids), row[1].get<std::string>());
      EXPECT_EQ(testdata::joined(testdata::stream(tokenizer, ids)), row[1].get<std::string>());
    }
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode("</s>", false).front(), 2);         // a control token, read
    EXPECT_NE(tokenizer->encode("</s>", false, false).front(), 2);  // and as text
  }
}

TEST(GgufVocabulary, UnigramEncodesAsItsLibraryDoes) {
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  for (const Json& vocabulary : fixture["vocabularies"]) {
    if (vocabulary["model"] != "t5") continue;
    GgufMetadata metadata = sentence_piece(vocabulary);
    const auto tokenizer = Tokenizer::load(testdata::gguf(metadata));
    const auto texts = vocabulary["texts"].get<Strings>();
    int compared = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      // without the file's table only texts that it leaves alone are the same
      const bool plain =
          std::all_of(texts[i].begin(), texts[i].end(), [](char c) { return c >= ' ' && c < 0x7F; });
      if (!plain || texts[i].find_first_not_of(' ') == std::string::npos) continue;
      auto ids = vocabulary["ids"][i].get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer->encode(texts[i], false, false), ids) << texts[i];
      ids.push_back(2);
      EXPECT_EQ(tokenizer->encode(texts[i], true, false), ids) << texts[i];
      ++compared;
    }
    EXPECT_GE(compared, 10);
    metadata.erase(kKey + "scores");
    EXPECT_NE(error_of(metadata).find("scores"), std::string::npos);
    metadata = sentence_piece(vocabulary);
    metadata[kKey + "precompiled_charsmap"] = integers({9, 9});
    EXPECT_NE(error_of(metadata).find("precompiled_charsmap"), std::string::npos);
  }
}

TEST(GgufVocabulary, WordPieceIsTheOneOfHuggingFace) {
  const Json fixture = Json::parse(testdata::load("tokenizers.json"));
  const Json& reference = fixture["tokenizers"][3];
  Strings tokens(reference["json"]["model"]["vocab"].size());
  Integers types(tokens.size(), 1);
  for (const auto& [token, at] : reference["json"]["model"]["vocab"].items()) {
    const bool special = token.size() > 2 && token.front() == '[' && token.back() == ']';
    const bool inside = token.starts_with("##");
    tokens[at.get<size_t>()] = special ? token : inside ? token.substr(2) : "▁" + token;
    if (special) types[at.get<size_t>()] = 3;
  }
  const auto tokenizer = Tokenizer::load(testdata::gguf({{kKey + "model", text("bert")},
                                                         {kKey + "tokens", strings(tokens)},
                                                         {kKey + "token_type", integers(types)},
                                                         {kKey + "unknown_token_id", id(1)},
                                                         {kKey + "cls_token_id", id(2)},
                                                         {kKey + "seperator_token_id", id(3)}}));
  const auto texts = fixture["texts"].get<Strings>();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->encode(texts[i], true), reference["special"][i].get<std::vector<TokenId>>())
        << texts[i];
  }
}

}  // namespace
}  // namespace mlxcel
