// Embedding jobs through ragged steps: inputs of several jobs share a step, whole, up to a token budget.
// Owner: the loop. Thread: model thread; EmbedJob is filled on the caller's thread before it is handed over.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/front/pooling.h"
#include "models/model.h"

namespace mlxcel {

struct EmbedJob {
  /// Errors cross threads as values.
  using Outcome = std::variant<Embeddings, Error>;

  EmbedRequest request;
  bool scores = false;  // of a classifier, or of `answers`, in place of pooled states
  std::vector<int> seconds = {};
  std::optional<std::pair<TokenId, TokenId>> answers = {};
  Pooling pooling = Pooling::mean;
  Embeddings result;
  std::promise<Outcome> promise;
  size_t next = 0;  // first input not yet in a step
  size_t done = 0;  // inputs with a vector
  bool settled = false;

  void settle(const std::optional<Error>& error = std::nullopt);
};

class Embedder {
 public:
  using Jobs = std::deque<std::unique_ptr<EmbedJob>>;
  struct Outcome {
    int inputs = 0, tokens = 0;
    double kernel_seconds = 0.0;
    bool evaluation_failed = false;  // of the whole step, before rows were tried alone
    bool any_succeeded = false;
    std::string error;
  };

  Embedder(Model& model, int token_budget, std::vector<DenseLayer> dense = {})
      : model_(model), budget_(token_budget), dense_(std::move(dense)) {}
  /// One step over the first inputs that wait. Jobs that end are settled, not removed.
  Outcome step(Jobs& jobs);

 private:
  struct Input {
    EmbedJob* job;
    size_t index;
  };
  void evaluate(const std::vector<Input>& inputs, Outcome& outcome);
  void score(const std::vector<Input>& inputs, Step& step, Outcome& outcome);

  Model& model_;
  int budget_;
  std::vector<DenseLayer> dense_;
};

}  // namespace mlxcel
