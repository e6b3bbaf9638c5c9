#include "engine/front/rerank.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace mlxcel {

std::pair<int, int> longest_first(int first, int second, int most) {
  if (first + second <= most) return {first, second};
  int shorter = std::min(first, second);
  int longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = shorter + most % 2;
  }
  return first > second ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

TextPair make_pair_of_texts(const Tokenizer& tokenizer, std::string_view first, std::string_view second,
                            int most, bool* cut) {
  auto a = tokenizer.encode(first, true), b = tokenizer.encode(second, true);
  if (a.size() < 2 || b.size() < 2 || !tokenizer.is_special(a.front()) || !tokenizer.is_special(a.back()))
    fail(ErrorKind::unsupported, "this tokenizer puts no marks around a text: it makes no pairs");
  const TokenId start = a.front(), end = a.back();
  const bool doubled = tokenizer.token_text(start) == "<s>";
  const int marks = doubled ? 4 : 3;
  const auto body = [](std::vector<TokenId>& ids) {
    ids.erase(ids.begin());
    ids.pop_back();
  };
  body(a);
  body(b);
  if (most <= marks)
    fail(ErrorKind::invalid_request, "a pair needs more than {} tokens, found {}", marks, most);
  const auto [left, right] =
      longest_first(static_cast<int>(a.size()), static_cast<int>(b.size()), most - marks);
  if (cut != nullptr) *cut = left < static_cast<int>(a.size()) || right < static_cast<int>(b.size());
  TextPair pair;
  pair.tokens.push_back(start);
  pair.tokens.insert(pair.tokens.end(), a.begin(), a.begin() + left);
  pair.tokens.push_back(end);
  if (doubled) pair.tokens.push_back(end);
  pair.second = static_cast<int>(pair.tokens.size());
  pair.tokens.insert(pair.tokens.end(), b.begin(), b.begin() + right);
  pair.tokens.push_back(end);
  return pair;
}

std::string qwen3_rerank_prompt(std::string_view query, std::string_view document,
                                std::string_view instruction) {
  if (instruction.empty())
    instruction = "Given a web search query, retrieve relevant passages that answer the query";
  return fmt::format(
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
      "Instruct "
      "provided. Note that the answer can only be \"yes\" or "
      "\"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: {}\n"
      "<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
      instruction, query, document);
}

ScoreRequest rerank_request(const Engine& engine, std::string_view query,
                            const std::vector<std::string>& documents, std::string_view instruction) {
  const auto& tokenizer = engine.tokenizer();
  if (!tokenizer) fail(ErrorKind::unsupported, "{} has no tokenizer", engine.info().model_type);
  ScoreRequest request;
  if (engine.info().labels > 0) {
    for (const auto& document : documents) {
      auto pair = make_pair_of_texts(*tokenizer, query, document, engine.max_input());
      request.inputs.push_back(std::move(pair.tokens));
      request.seconds.push_back(pair.second);
    }
    return request;
  }
  const auto yes = tokenizer->token_id("yes"), no = tokenizer->token_id("no");
  if (!engine.info().encoder || !yes || !no)
    fail(ErrorKind::unsupported,
         "{} is no reranker: it has neither a classifier nor the answers \"yes\" and \"no\"",
         engine.info().model_type);
  request.answers = {*yes, *no};
  for (const auto& document : documents)
    request.inputs.push_back(tokenizer->encode(qwen3_rerank_prompt(query, document, instruction), false));
  return request;
}

double relevance(const std::vector<float>& scores) {
  if (scores.empty() || scores.size() > 2)
    fail(ErrorKind::unsupported, "{} labels: one or two give a relevance", scores.size());
  const double logit = scores.size() == 1 ? scores[0] : static_cast<double>(scores[1]) - scores[0];
  return 1.0 / (1.0 + std::exp(-logit));
}

}  // namespace mlxcel
