// From a query and documents to what a reranker reads: pairs for a cross-encoder, the published prompt for
// Qwen3's rerankers; and from its scores to a relevance. Thread: any. Failure: unsupported where the model is
// no reranker.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace mlxcel {

struct TextPair {
  std::vector<TokenId> tokens;
  int second = 0;  // where the second text begins
};

/// [CLS] first [SEP] second [SEP], or RoBERTa's form with two separators; the longer text is cut first until
/// at most `most` tokens are left (`cut` says whether that happened). Source: longest_first of the tokenizers
/// library.
TextPair make_pair_of_texts(const Tokenizer& tokenizer, std::string_view first, std::string_view second,
                            int most, bool* cut = nullptr);

/// How many tokens of `first` and `second` stay of `most` in all.
std::pair<int, int> longest_first(int first, int second, int most);

/// Qwen3-Reranker's own prompt; an empty instruction is the published one.
std::string qwen3_rerank_prompt(std::string_view query, std::string_view document,
                                std::string_view instruction = {});

/// One input for each document, as engine.info() says: pairs where it has labels, else the prompt with the
/// answers "yes" and "no".
ScoreRequest rerank_request(const Engine& engine, std::string_view query,
                            const std::vector<std::string>& documents, std::string_view instruction = {});

/// 0 to 1: the sigmoid of a single score, of two labels the softmax of the second; of more, the largest
/// logit's share is no relevance: unsupported.
double relevance(const std::vector<float>& scores);

}  // namespace mlxcel
