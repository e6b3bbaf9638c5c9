// llama-server's own embedding route, and what a rerank request must look like. Thread: any.
// Failure: invalid_request naming the field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/openai/embedding.h"

namespace mlxcel::llama {

/// `content` or `input`.
openai::EmbeddingRequest parse_embedding(std::string_view body, int vocab_size);
/// [{"index", "embedding": [[…]]}]
std::string print_embeddings(const std::vector<std::vector<float>>& vectors);
/// Jina's or TEI's body: query and documents or texts.
void check_rerank(std::string_view body);

}  // namespace mlxcel::llama
