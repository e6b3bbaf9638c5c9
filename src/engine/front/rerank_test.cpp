#include "engine/front/rerank.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace mlxcel {
namespace {

/// Words a to f behind the two marks, which `cls` and `sep` name.
std::shared_ptr<const Tokenizer> tokenizer(const std::string& cls, const std::string& sep) {
  const auto mark = [](int id, const std::string& text) {
    return fmt::format(R"({{"id": {}, "content": "{}", "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true}})",
                       id, text);
  };
  return Tokenizer::from_json(fmt::format(
      R"({{"version": "1.0", "added_tokens": [{}, {}], "pre_tokenizer": {{"type": "Whitespace"}},
          "post_processor": {{"type": "BertProcessing", "cls": ["{}", 0], "sep": ["{}", 1]}},
          "model": {{"type": "WordLevel", "unk_token": "{}",
                     "vocab": {{"{}": 0, "{}": 1, "a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 7}}}}}})",
      mark(0, cls), mark(1, sep), cls, sep, cls, cls, sep));
}

TEST(Rerank, TheLongerTextIsCutFirst) {
  EXPECT_EQ(longest_first(10, 5, 20), std::pair(10, 5));
  EXPECT_EQ(longest_first(10, 5, 12), std::pair(7, 5));
  EXPECT_EQ(longest_first(5, 10, 12), std::pair(5, 7));
  EXPECT_EQ(longest_first(3, 20, 10), std::pair(3, 7));
  // Both are over half: halves, the odd token to the longer, and to the second of two equals.
  EXPECT_EQ(longest_first(10, 10, 9), std::pair(4, 5));
  EXPECT_EQ(longest_first(12, 10, 9), std::pair(5, 4));
  EXPECT_EQ(longest_first(12, 15, 10), std::pair(5, 5));
}

TEST(Rerank, PairsAreMarkedAsTheFamilyDoes) {
  const auto bert = tokenizer("[CLS]", "[SEP]");
  bool cut = true;
  const TextPair pair = make_pair_of_texts(*bert, "a b", "c d e", 100, &cut);
  EXPECT_EQ(pair.tokens, (std::vector<TokenId>{0, 2, 3, 1, 4, 5, 6, 1}));
  EXPECT_EQ(pair.second, 4);
  EXPECT_FALSE(cut);
  const TextPair roberta = make_pair_of_texts(*tokenizer("<s>", "</s>"), "a", "b", 100);
  EXPECT_EQ(roberta.tokens, (std::vector<TokenId>{0, 2, 1, 1, 3, 1}));
  EXPECT_EQ(roberta.second, 4);
  const TextPair shortened = make_pair_of_texts(*bert, "a b", "c d e f", 7, &cut);
  EXPECT_EQ(shortened.tokens, (std::vector<TokenId>{0, 2, 3, 1, 4, 5, 1}));
  EXPECT_TRUE(cut);
  EXPECT_THROW(make_pair_of_texts(*bert, "a", "b", 3), Error);
  EXPECT_EQ(make_pair_of_texts(*bert, "", "b", 100).tokens, (std::vector<TokenId>{0, 1, 3, 1}));
}

TEST(Rerank, TheOfficialPromptHoldsAllThree) {
  const auto prompt = qwen3_rerank_prompt("what", "that {}", "do");
  EXPECT_TRUE(prompt.starts_with("<|im_start|>system\nJudge whether"));
  EXPECT_NE(prompt.find("<Instruct>: do\n<Query>: what\n<Document>: that {}<|im_end|>"), std::string::npos);
  EXPECT_TRUE(prompt.ends_with("<think>\n\n</think>\n\n"));
  EXPECT_NE(qwen3_rerank_prompt("q", "d").find("web search query"), std::string::npos);
}

TEST(Rerank, RelevanceOfOneOrTwoLabels) {
  EXPECT_DOUBLE_EQ(relevance({0.0f}), 0.5);
  EXPECT_NEAR(relevance({2.0f}), 1.0 / (1.0 + std::exp(-2.0)), 1e-12);
  EXPECT_NEAR(relevance({1.0f, 3.0f}), relevance({2.0f}), 1e-12);
  EXPECT_THROW(relevance({}), Error);
  EXPECT_THROW(relevance({1, 2, 3}), Error);
}

}  // namespace
}  // namespace mlxcel
