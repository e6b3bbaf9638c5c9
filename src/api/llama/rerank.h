// Rerank requests and answers in two dialects: Jina's (documents) and TEI's (texts). Thread: any.
// Failure: invalid_request naming the field; Refusal 501 for images.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxcel::llama {

struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;
  bool tei = false;  // `texts`: a bare array is wanted
  int top_n = 0;     // 0: all
  bool return_documents = false;
  std::string instruction;  // generative rerankers
  std::string model;
  std::vector<std::string> ignored;
};
RerankRequest parse_rerank(std::string_view body);

/// `scores[i]` of document i. Highest first, ties by index, cut to top_n.
std::string print_rerank(const RerankRequest& request, const std::vector<double>& scores, int prompt_tokens,
                         const std::string& model);

}  // namespace mlxcel::llama
