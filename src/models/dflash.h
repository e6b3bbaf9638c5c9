// Block drafters: from what some of the target's layers gave for every token so far, and the last token
// followed by mask tokens, they guess all masked tokens in one evaluation. Embedding and head are the
// target's. Owner: the drafter. Thread: model thread; loading any one thread.
// References: Chen et al. 2026, "DFlash"; transformers MuseGlimmerAssistant; mlx-vlm's qwen3_dflash, dspark.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/source.h"
#include "models/decoder.h"
#include "models/model.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "state/store.h"

namespace mlxcel {

class DflashHead {
 public:
  static constexpr int kMostProposals = 63;  // rows can be taken back by kRollbackTokens

  struct Form {
    std::vector<int> layers;  // of the target, whose outputs are read, ascending
    int mask = 0;             // the token that stands for one not known yet
    int proposals = 0;        // most tokens of a draft
    bool in_place = true;     // a mask's logits are of its own token; else those of the token behind it
  };

  /// From the drafter's own config and tensors. bad_checkpoint, or unsupported, naming what does not fit the
  /// target: width, layers, vocabulary.
  static std::shared_ptr<const DflashHead> load(const Config& config, std::shared_ptr<Source> source,
                                                const Model& target);

  const Form& form() const { return form_; }
  const StateLayout& layout() const { return layout_; }
  int vocab() const { return embedding_.rows; }
  int width() const { return embedding_.width * static_cast<int>(form_.layers.size()); }

  /// Puts the step's tokens, of which the target's layers gave states [tokens, width()], behind what the rows
  /// hold. What it returns must be evaluated.
  array remember(Step& step, const array& states) const;
  /// The step's tokens are whole blocks: logits [tokens, vocab].
  array guess(Step& step) const;
  /// DSpark: logits [vocab] seen from the token drafted before; empty where drafters do not look back. Valid
  /// until the next call.
  std::span<const float> corrected(std::span<const float> logits, int32_t before) const;

 private:
  /// A first-order correction: logits += out(in[before]).
  struct Markov {
    Embedding in;
    Linear out;
  };
  DflashHead() = default;

  Form form_;
  StateLayout layout_;
  Embedding embedding_;
  Linear head_;
  std::vector<Norm> tap_norms_;  // of each layer's output; none: as they are
  Linear join_;                  // [hidden, width()]
  std::optional<Norm> joined_norm_, norm_;
  std::vector<PreNorm> layers_;
  std::optional<Markov> markov_;
  mutable std::optional<array> corrected_;
};

/// Whether a config describes such a drafter.
bool is_dflash(const Config& config);

}  // namespace mlxcel
