// llama-server's own embedding route. Thread: any.
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

}  // namespace mlxcel::llama
