// Logits to a token: bias, penalties, filters, temperature, draw, log-probabilities, in the order of the chain
// logit bias -> penalties -> top_k -> top_p -> min_p -> temperature -> draw.
// Owner: one per sequence. Thread: model thread (plain memory, no MLX).
// Random numbers are counter-based (Philox 4x32-10, Salmon et al. 2011): a draw depends on
// (seed, choice, position) alone, so neighbours, batching and speculation do not change it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace mlxcel {

namespace logits {
struct Cut;
}

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy, ties to the lowest id
  int top_k = 0;             // 0: off; 1: greedy
  float top_p = 1.0f;        // 0 keeps one token
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int repeat_last_n = 64;    // -1: whole context
  int min_keep = 1;
  std::map<int32_t, float> logit_bias;
  std::vector<int32_t> banned;          // ignore_eos
  std::optional<uint32_t> seed;         // absent: fresh from the operating system
  int logprobs = -1;                    // -1: none; k: the k best beside the chosen one
};

/// Throws invalid_request naming the parameter for a value outside its range. Biases are within +-100,
/// penalties within +-100 (repeat_penalty 0.01 to 100): so no sum of edits leaves the floats.
void validate(const SamplingParams& params, int vocab_size);

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct Draw {
  int32_t token = 0;
  float logprob = 0.0f;               // of the model before bias and filters; only with logprobs >= 0
  std::vector<TokenLogprob> top;      // descending, ties to the lowest id
};

class Sampler {
 public:
  Sampler(const SamplingParams& params, int vocab_size, int choice = 0);
  /// `logits` [vocab] of the last token; `history`: prompt and answer so far; position: index of the
  /// token to be drawn in the sequence (the counter of the random draw). Throws internal when a logit is
  /// not finite: that row's evaluation went wrong.
  Draw sample(std::span<const float> logits, std::span<const int32_t> history, int64_t position);
  uint32_t seed() const { return seed_; }

 private:
  bool greedy() const { return params_.temperature == 0.0f || params_.top_k == 1; }
  bool edits(std::span<const int32_t> history) const;
  std::span<const float> edited(std::span<const float> logits, std::span<const int32_t> history);
  int32_t draw(std::span<const float> logits, float highest, int64_t position);
  int32_t draw_ranked(float highest, double total, double uniform);
  int32_t draw_all(std::span<const float> logits, float highest, const logits::Cut& cut, double uniform) const;
  double min_p_floor(float highest) const;

  SamplingParams params_;
  int vocab_size_;
  int choice_;
  uint32_t seed_;
  std::vector<float> scratch_;              // edited logits [vocab]
  std::vector<int32_t> counts_;             // occurrences in the penalty window [vocab]; zero between calls
  std::vector<TokenLogprob> ranked_;        // best candidates, descending; `logprob` holds the logit
};

/// Log-probability of `token` and the `top` best, straight from logits (prompt log-probabilities, echo).
Draw score(std::span<const float> logits, int32_t token, int top);

}  // namespace mlxcel
