// Gemma 4's assistants: a few layers that keep nothing of their own. From the last token and what the target
// computed for the one before it they guess the next, reading the keys and values that the target's last full
// and last sliding layer hold; fed with their own state they go on, at the same place. Owner: the drafter.
// Thread: model thread; loading any one thread.
// Reference: transformers Gemma4AssistantForCausalLM, SinglePositionMultiTokenCandidateGenerator.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/source.h"
#include "models/model.h"
#include "models/skeleton.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace mlxcel {

/// Whether a config describes one.
bool is_assistant(const Config& config);

class AssistantHead {
 public:
  /// bad_checkpoint, or unsupported, naming what does not fit the target: width, vocabulary, heads.
  static std::shared_ptr<const AssistantHead> load(const Config& config, std::shared_ptr<Source> source,
                                                   const Model& target);

  int vocab() const { return head_.out; }
  int width() const { return table_.width; }
  /// Rows of the target's own, each with its last token, which their memory does not hold yet, and the states
  /// [rows, width] f32 of the tokens before: logits [rows, vocab], and states to go on with. The step must
  /// not be committed: what it writes lies behind the rows' ends.
  std::pair<array, array> operator()(Step& step, const array& states) const;

 private:
  /// Where only some groups of tokens are looked at: those whose centres are nearest.
  struct Groups {
    Linear centres;  // [groups, hidden]
    array order;     // [groups, tokens of each] int32
    int looked_at = 0;
  };
  AssistantHead() = default;
  array logits(const array& x) const;

  Embedding table_;  // the target's
  Linear before_, after_;
  std::vector<Block> layers_;
  std::optional<RmsNorm> norm_;
  Embedding own_table_;
  Linear head_;
  std::optional<Groups> groups_;
};

}  // namespace mlxcel
