// A draft of a text-diffusion answer that is drawn whole: random tokens at first; in each round the surest of
// those drawn stay and the others become random again, until the likeliest tokens no longer change. Owner:
// its sequence. Thread: model thread; plain memory. References: DiffusionGemma's generation (transformers
// EntropyBoundSampler, StableAndConfidentStoppingCriteria); the bound, Ben-Hamu et al. 2025.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/skeleton.h"
#include "text/tokenizer.h"

namespace mlxcel {

/// What the publisher's generation_config.json says of the rounds; --max-denoising-steps and
/// --diffusion-threshold come before it. bad_checkpoint for numbers out of range.
Diffusion tuned(Diffusion diffusion, const Checkpoint& checkpoint);

class Sketch {
 public:
  Sketch(const Diffusion& model, int vocab, uint32_t seed) : model_(model), vocab_(vocab), seed_(seed) {}

  bool empty() const { return tokens_.empty(); }
  /// Random tokens for the places from `position` of the sequence on.
  void begin(int size, int64_t position);
  /// What the model reads, and what it expected in the round before.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::optional<array>& before() const { return before_; }
  /// Of a draft where so many tokens are still wanted.
  int length(int wanted) const;
  /// This round's: it falls from the first to the last.
  float temperature() const;
  /// The counter of a place's random draw in this round.
  int64_t counter(int place) const;

  /// One round's logits [size * vocab], over the temperature, and a token drawn from each row. True when it
  /// is done.
  bool settle(std::vector<float> logits, std::span<const TokenId> drawn);
  /// The likeliest tokens; the sketch is empty again.
  std::vector<TokenId> take();

 private:
  TokenId noise(int place) const;
  /// Which of the drawn tokens stay.
  std::vector<bool> kept(const std::vector<double>& entropies, std::span<const float> logits,
                         std::span<const TokenId> drawn) const;

  Diffusion model_;
  int vocab_;
  uint32_t seed_;
  int64_t position_ = 0;
  int round_ = 0;
  int agreeing_ = 0;  // rounds in a row whose likeliest tokens were those before
  std::vector<TokenId> tokens_, likeliest_;
  std::optional<array> before_;
};

}  // namespace mlxcel
