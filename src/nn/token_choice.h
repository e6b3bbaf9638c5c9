// Experts by a table of token ids; their weights are scores all the same. Owner: value. Thread: model thread.
// Reference: transformers DeepseekV4HashRouter.
#pragma once

#include <utility>

#include "nn/linear.h"
#include "nn/moe.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

class TokenChoice {
 public:
  /// Reads gate and gate.tid2eid [vocab, per_token].
  TokenChoice(const Weights& w, int hidden, int vocab, const MoeOptions& moe);
  /// Experts [tokens, per_token] int32, and their weights.
  std::pair<array, array> operator()(const array& x, const Step& step) const;

 private:
  Linear gate_;
  array table_;
  MoeOptions moe_;
};

}  // namespace mlxcel
