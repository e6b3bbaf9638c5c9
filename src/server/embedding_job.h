// Texts to vectors for every API that asks for them, off the connection's executor since the engine is waited
// for. Thread: the exchange's executor. Failure: Error and Refusal; what goes wrong later becomes an error
// answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/embedding.h"
#include "server/router.h"

namespace mlxcel {

struct EmbeddingJob {
  std::vector<openai::Prompt> inputs;
  std::vector<std::string> paths;  // for messages
  std::optional<int> normalize;    // openai::normalize_embedding's numbers
  int dimensions = 0;
  bool truncate = true;
  std::vector<std::string> ignored;
};
/// 504 where the exchange has no answer after the time that vectors and scores may take.
void limit_wait(const Router& router, const std::shared_ptr<Exchange>& exchange);
void start_embedding(const Router& router, const std::shared_ptr<Exchange>& exchange, EmbeddingJob job,
                     std::function<std::string(const Embeddings&)> print);

}  // namespace mlxcel
