// How an encoder's hidden states become one vector: what the checkpoint says, and the arithmetic.
// Thread: any; plain memory. Failure: bad_checkpoint, unsupported, invalid_request as the source of the word.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/front/dense.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace mlxcel {

enum class Pooling { mean, cls, last, max };
const char* to_string(Pooling pooling);
/// mean, cls, last (also lasttoken), max; nothing for other words.
std::optional<Pooling> parse_pooling(std::string_view word);

struct EmbeddingSetup {
  Pooling pooling = Pooling::mean;
  int max_input = 0;  // tokens
  std::vector<DenseLayer> dense = {};
};

/// Pooling: MLXCEL_EMBEDDING_POOLING, `word` (an option), 1_Pooling/config.json, the family's default.
/// Length: the least of the tokenizer's, the model's, 8192 and `context` (0: unset).
EmbeddingSetup read_embedding_setup(const Checkpoint& checkpoint, const Tokenizer* tokenizer,
                                    const ModelInfo& info, const std::string& word, int context);

/// `hidden` [tokens, width] of one input, pooled, through the dense layers -> the first `dimensions` (0: all)
/// of its vector, of length 1 when `normalize`. Tokens are summed in order, in f64.
std::vector<float> pool(std::span<const float> hidden, int width, Pooling pooling, int dimensions,
                        bool normalize, std::span<const DenseLayer> dense = {});

}  // namespace mlxcel
