// POST /v1/embeddings: the request as a struct, the answer as text.
// Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/completion.h"

namespace mlxcel::openai {

struct EmbeddingRequest {
  std::optional<std::string> model;
  std::vector<Prompt> inputs;
  std::vector<std::string> paths;
  bool base64 = false;           // what official clients ask for; floats when the field is absent
  int dimensions = 0;            // 0: all
  std::optional<int> normalize;  // -1 none, 0 largest to 32760, 1 taxicab, 2 euclidean, p > 2
  std::vector<std::string> ignored;
};

EmbeddingRequest parse_embedding(std::string_view body, int vocab_size);

/// In place; `norm` as in EmbeddingRequest. A zero vector stays zero.
void normalize_embedding(std::vector<float>& vector, int norm);

std::string print_embeddings(const std::vector<std::vector<float>>& vectors, bool base64,
                             const std::string& model, int prompt_tokens);

}  // namespace mlxcel::openai
