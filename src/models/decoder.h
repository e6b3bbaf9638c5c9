// The decoder skeleton: embedding, layers, final norm, head. What differs between families stands in their
// blocks. Owner: the loaded Model. Thread: model thread.
#pragma once

#include <functional>
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

/// h += scale * mixer(norm(h)); h += scale * ffn(norm(h))
struct PreNorm {
  Norm mixer_norm;
  Mixer mixer;
  Norm ffn_norm;
  Ffn ffn;
  float scale = 1.0f;
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

/// h += norm(mixer(h)); h += norm(ffn(h))
struct NormAfter {
  Mixer mixer;
  Norm after_mixer;
  Ffn ffn;
  Norm after_ffn;
  array operator()(const array& h, Step& step) const;
  void extend(PhaseList& list) const;
};

/// h += mixer(norm(h)) + ffn(norm(h)): both read the same h, through one norm or two.
struct Parallel {
  Norm norm;
  Mixer mixer;
  Ffn ffn;
  std::optional<Norm> ffn_norm = {};
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
                 const Embedding& embedding, Tie tie, Bias bias = Bias::as_stored);

class Decoder : public Skeleton {
 public:
  Decoder(const Dims& dims, Embedding embedding);

  const Embedding& embedding() const { return embedding_; }
  void learned_positions(Embedding positions) { positions_ = std::move(positions); }
  /// The embeddings pass through a norm before the first layer.
  void embedding_norm(Norm norm) { embedding_norm_ = std::move(norm); }
  void add(Block block) { blocks_.push_back(std::move(block)); }
  void finish(Norm norm, Linear head);
  /// logits = cap * tanh(logits / cap)
  void softcap(float cap) { softcap_ = cap; }
  /// Its blocks of masked tokens are filled in together.
  void diffuses(const Diffusion& diffusion) { diffusion_ = diffusion; }
  /// logits *= scale, before the cap
  void logit_scale(float scale) { logit_scale_ = scale; }

  NetworkFacts facts() const override;
  array hidden(Step& step) const override;
  array logits(Step& step) const override;
  std::pair<array, array> logits_and_hidden(Step& step) const override;
  std::pair<array, array> logits_and_layers(Step& step, std::span<const int> layers) const override;
  const Embedding* table() const override { return &embedding_; }
  const Linear* head() const override { return &head_; }

 private:
  /// `taps`: layers whose outputs are put into `seen`.
  array layers(Step& step, std::span<const int> taps = {}, std::vector<array>* seen = nullptr) const;
  void layers(PhaseList& list, std::span<const int> taps = {}, std::vector<array>* seen = nullptr) const;
  array normed(Step& step, std::span<const int> taps, std::vector<array>* seen) const;
  array wanted_logits(const Step& step, const array& normed) const;
  array capped(const array& logits) const;

  Dims dims_;
  Embedding embedding_;
  std::optional<Embedding> positions_;
  std::vector<Block> blocks_;
  std::optional<Norm> norm_;
  Linear head_;
  std::optional<Norm> embedding_norm_;
  float softcap_ = 0.0f, logit_scale_ = 1.0f;
  Diffusion diffusion_;
};

/// sqrt(hidden), rounded to the table's type as Gemma computes it (55.4256 is 55.5 in bf16).
float root_of_width(const Weights& w, int hidden);

/// Embedders of a decoder's family see both ways.
void refuse_two_way(const Config& config);

/// tie_word_embeddings
inline Tie tied(const Config& config, bool fallback) {
  return tie_if(config.get("tie_word_embeddings", fallback));
}

/// Asks for a norm over the model's width by its name.
using NormMaker = std::function<Norm(const Weights& w, std::string_view name)>;
NormMaker rms_norms(int width, float eps, float offset = 0.0f);
NormMaker layer_norms(int width, float eps, Bias bias = Bias::required);

struct StandardOptions {
  Tie tie = Tie::no;
  float embedding_scale = 1.0f;
  Bias head_bias = Bias::as_stored;
  const char* root = "model";  // "model.embed_tokens", "model.layers", "model.norm"
  const char* head = "lm_head";
};

/// A decoder whose tensors have the usual names; `layer` makes each block in its scope.
Decoder standard_decoder(const Weights& w, const Dims& dims, const NormMaker& norm,
                         const StandardOptions& options,
                         const std::function<Block(int i, const Weights& layer)>& layer);

}  // namespace mlxcel
