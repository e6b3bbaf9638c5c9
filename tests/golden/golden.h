// A golden: a tiny model as a checkpoint publishes it (config, tensor names and shapes; the values follow
// from the names), some tokens, and what the reference implementation answers. Written by tools/golden.
// Owner: value. Thread: model thread where a model is built or run.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "quantized.h"
#include "state/step.h"

namespace mlxcel::golden {

struct Mutant {
  std::string label;   // the patch, for messages
  std::string config;  // JSON text
  float distance = 0;  // how far the reference moves under it
};

struct Golden {
  std::string name, reference, model_type;
  std::string config;                  // JSON text
  std::vector<std::string> spellings;  // other texts of the same model
  std::vector<TensorShape> tensors;
  Formats formats;  // of those kept quantised
  std::vector<int32_t> tokens;
  std::vector<int> positions;                // those whose answers are kept
  std::vector<std::vector<float>> expected;  // [positions][vocab or hidden]
  bool encoder = false;
  bool scored = false;  // a classifier: its scores stand where the first token's hidden state would
  int second = 0;       // where the second of two texts begins
  int draft = 0;        // its last so many tokens are a draft, whose answers are those of a second round
  int prompt = 0;       // not 0: tokens from there on were written by the model, not read with the prompt
  std::vector<Mutant> mutants;
};

/// Every file of tests/golden/data, sorted by name.
const std::vector<Golden>& all();

/// Whether an architecture answers to the golden's model_type.
bool has_arch(const Golden& golden);

/// The way a checkpoint goes: detection, rules, build.
std::unique_ptr<Model> build(const Golden& golden, const std::string& config);

using Rows = std::vector<std::vector<float>>;  // [tokens][vocab or hidden]

/// All answers for one row of tokens, taken in chunks of these sizes (the last chunk takes the rest).
Rows run(Model& model, const std::vector<int32_t>& tokens, const std::vector<int>& chunks = {},
         int second = 0, int draft = 0, int prompt = 0);
/// Several rows in one step; `seconds`, `drafts` and `prompts`: see Golden.
std::vector<Rows> run_together(Model& model, const std::vector<std::vector<int32_t>>& rows,
                               const std::vector<int>& seconds = {}, const std::vector<int>& drafts = {},
                               const std::vector<int>& prompts = {});

/// The largest difference of log-probabilities above -10, or of hidden values (relative to the largest one).
float distance(const Golden& golden, const Rows& actual);

}  // namespace mlxcel::golden
