// Logits to a token: biases -> grammar mask -> the stages of the chain, in the order asked for -> draw.
// Owner: one per sequence. Thread: model thread (plain memory, no MLX).
// Random numbers are counter-based (Philox 4x32-10, Salmon et al. 2011): a draw depends on
// (seed, choice, position) alone, so neighbours, batching and speculation do not change it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sample/params.h"

namespace mlxcel {

namespace logits {
struct Cut;
struct Peak;
}  // namespace logits

class Candidates;
class Dry;

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct Draw {
  int32_t token = 0;
  float logprob = 0.0f;           // of the model before bias and filters; only with logprobs >= 0
  std::vector<TokenLogprob> top;  // descending, ties to the lowest id
};

/// Bit t of word t / 32: token t may come next. Empty: any may.
using TokenMask = std::span<const uint32_t>;

/// A drafted token that was drawn, and from which odds [vocab].
struct Proposal {
  int32_t token = 0;
  std::vector<float> odds;
};

class Sampler {
 public:
  /// `bytes` is needed where DRY has breakers.
  Sampler(const SamplingParams& params, int vocab_size, int choice = 0,
          std::shared_ptr<const TokenBytes> bytes = nullptr);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  /// `logits` [vocab] of the last token; `history`: prompt and answer so far; position: index of the
  /// token to be drawn in the sequence (the counter of the random draw). Throws internal when a logit is
  /// not finite: that row's evaluation went wrong. Call once for every token of the answer: mirostat and
  /// adaptive_p learn from what they draw.
  /// `drafted`: where judges() holds, that token stands with the chance that makes every draw follow the
  /// distribution it would follow without; any other token says that it does not stand. Leviathan et al.
  /// 2023, "Fast Inference from Transformers via Speculative Decoding".
  Draw sample(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
              TokenMask mask = {}, const Proposal* drafted = nullptr);
  /// Whether drafted tokens may be judged by their odds: draws are random and learn nothing from one another.
  bool judges() const;
  /// A token drawn from a drafter's logits, of which those beyond the vocabulary are none, at this sampler's
  /// temperature.
  Proposal propose(std::span<const float> logits, int64_t position) const;
  uint32_t seed() const { return seed_; }

 private:
  bool greedy() const { return params_.temperature == 0.0f || params_.top_k == 1; }
  bool has_edits_behind_filters() const;
  void plan();
  std::span<const float> edited(std::span<const float> logits, std::span<const int32_t> history,
                                TokenMask mask);
  template <class Edit>
  void penalise(std::span<const int32_t> history, Edit&& edit);
  int32_t draw(std::span<const float> logits, float highest, int64_t position);
  int32_t draw_ranked(float highest, double total, double uniform);
  int32_t draw_all(std::span<const float> logits, float highest, const logits::Cut& cut,
                   double uniform) const;
  bool run_chain(std::span<const float> logits, std::span<const int32_t> history, int64_t position);
  int32_t draw_chain(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
                     Draw& draw);
  int32_t judged(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
                 const Proposal& drafted);
  size_t draw_adaptive(double uniform);
  double min_p_floor(float highest) const;
  double uniform(int64_t position, uint32_t lane) const;

  SamplingParams params_;
  int vocab_size_;
  int choice_;
  uint32_t seed_;
  bool fast_ = true;          // top_k, top_p, min_p, temperature in this order, and nothing else
  std::vector<Stage> first_;  // penalties and DRY where they come before any filter
  std::vector<Stage> rest_;   // the stages after them that do something
  std::unique_ptr<Dry> dry_;
  std::unique_ptr<Candidates> candidates_;  // general path, and judged drafts
  float mu_ = 0.0f;                         // mirostat's running surprise
  double adaptive_sum_ = 0.0, adaptive_weight_ = 0.0;
  std::vector<float> scratch_;        // edited logits [vocab]
  std::vector<int32_t> counts_;       // occurrences in the penalty window [vocab]; zero between calls
  std::vector<TokenLogprob> ranked_;  // best candidates, descending; `logprob` holds the logit
};

/// Log-probability of `token` and the `top` best, straight from logits (prompt log-probabilities, echo).
Draw score(std::span<const float> logits, int32_t token, int top);

}  // namespace mlxcel
