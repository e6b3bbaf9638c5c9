// Multi-token prediction: the block that some checkpoints ship beside their decoder. From what the decoder
// last computed for a token, and the token that came after it, it guesses the one after that; fed with its
// own state it goes on. Embedding and head are the decoder's. Owner: the drafter. Thread: model thread.
// References: DeepSeek-V3 (2024), section 2.2; Qwen3-Next.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/skeleton.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/weights.h"
#include "state/store.h"

namespace mlxcel {

/// What an architecture makes of its tensors.
struct MtpBlock {
  Norm embedding_norm, hidden_norm;
  Linear join;  // [hidden, 2 * hidden] of the normed embedding, then the normed state
  std::vector<Block> layers;
  std::optional<Norm> norm;  // before the head
  bool goes_on_normed;       // the next guess reads the state behind that norm
  bool state_first = false;  // `join` has the normed state before the normed embedding
};

class MtpHead {
 public:
  /// What it shares with the decoder.
  struct Shared {
    Embedding embedding;
    Linear head;
  };
  MtpHead(StateLayout layout, MtpBlock block, Shared shared)
      : layout_(std::move(layout)), block_(std::move(block)), shared_(std::move(shared)) {}

  const StateLayout& layout() const { return layout_; }
  int hidden() const { return shared_.embedding.width; }
  int vocab() const { return shared_.embedding.rows; }
  /// The step's tokens, each with the state [tokens, hidden] f32 of the one before it: logits [wanted, vocab]
  /// of the one after, and states [tokens, hidden] to go on with.
  std::pair<array, array> operator()(Step& step, const array& states) const;

 private:
  StateLayout layout_;
  MtpBlock block_;
  Shared shared_;
};

/// DeepSeek-V3's names in scope "mtp": enorm, hnorm, eh_proj, and the norm before the head.
MtpBlock deepseek_mtp(const Weights& mtp, int hidden, float eps, std::vector<Block> layers,
                      const char* norm = "shared_head.norm", bool goes_on_normed = false);
/// Qwen's: pre_fc_norm_embedding, pre_fc_norm_hidden, fc, norm.
MtpBlock qwen_mtp(const Weights& mtp, int hidden, float eps, std::vector<Block> layers);
/// Rules that leave the block under `stem` ("model.layers.61.", "mtp.") alone, as "mtp.*", the copies of
/// embedding and head dropped.
std::vector<Rule> mtp_rules_of(const std::string& stem);
/// The same for layer `number` of the decoder's.
std::vector<Rule> mtp_layer_rules(int number);

}  // namespace mlxcel
