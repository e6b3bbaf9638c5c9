// The decoder skeleton: embedding, layers, final norm, head. What differs between families stands in their
// blocks. Owner: the loaded Model. Thread: model thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/skeleton.h"
#include "nn/dims.h"
#include "nn/norm.h"
#include "nn/weights.h"

namespace mlxcel {

// Each block is written twice: as a chain of graph nodes, and as phases of a program (extend()), in which a
// half that cannot be said stays a chain.

/// h += mixer(norm(h)); h += ffn(norm(h))
struct PreNorm {
  Norm mixer_norm;
  Mixer mixer;
  Norm ffn_norm;
  Ffn ffn;
  array operator()(const array& h, Step& step) const;
  void extend(PhaseList& list) const;
};

/// h += norm(mixer(norm(h))); h += norm(ffn(norm(h)))
struct Sandwich {
  Norm mixer_norm;
  Mixer mixer;
  Norm after_mixer;
  Norm ffn_norm;
  Ffn ffn;
  Norm after_ffn;
  array operator()(const array& h, Step& step) const;
  void extend(PhaseList& list) const;
};

/// h += mixer(norm(h)): layers without a feed-forward (Mamba).
struct MixerOnly {
  Norm norm;
  Mixer mixer;
  array operator()(const array& h, Step& step) const;
  void extend(PhaseList& list) const;
};

enum class Tie { no, yes, unless_shipped };
inline Tie tie_if(bool tied) { return tied ? Tie::yes : Tie::no; }

/// The output matrix: its own, or the embedding's. A stray one in a tied checkpoint is left out, with a
/// warning where it differs from the embedding.
Linear make_head(const Weights& w, std::string_view name, std::string_view embedding_name,
                 const Embedding& embedding, Tie tie);

class Decoder : public Skeleton {
 public:
  Decoder(const Dims& dims, Embedding embedding);

  const Embedding& embedding() const { return embedding_; }
  void learned_positions(Embedding positions) { positions_ = std::move(positions); }
  void add(Block block) { blocks_.push_back(std::move(block)); }
  void finish(Norm norm, Linear head);
  /// logits = cap * tanh(logits / cap)
  void softcap(float cap) { softcap_ = cap; }

  NetworkFacts facts() const override;
  array hidden(Step& step) const override;
  array logits(Step& step) const override;

 private:
  array layers(Step& step) const;
  void layers(PhaseList& list) const;
  array capped(const array& logits) const;

  Dims dims_;
  Embedding embedding_;
  std::optional<Embedding> positions_;
  std::vector<Block> blocks_;
  std::optional<Norm> norm_;
  Linear head_;
  float softcap_ = 0.0f;
};

}  // namespace mlxcel
