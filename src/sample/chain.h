// The stages of the sampling chain over a list of candidates, each a few lines: what the general path of
// Sampler runs when the order or the stages asked for are not those that its fast path knows. Owner: one per
// sequence. Thread: model thread; plain memory. Equal input gives equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/params.h"
#include "sample/sampler.h"

namespace mlxcel {

class Candidates {
 public:
  /// Every token with a finite logit.
  void start(std::span<const float> row);

  /// edit(logit) of a token, where it is still there.
  template <class Edit>
  void change(int32_t token, Edit&& edit) {
    for (auto& entry : list_)
      if (entry.token == token) entry.logprob = edit(entry.logprob), sorted_ = false;
  }
  void set(size_t i, float logit) { list_[i].logprob = logit, sorted_ = false; }

  void top_n_sigma(float n);
  void top_k(int k);
  void typical(float p, int min_keep);
  void top_p(float p, int min_keep);
  void min_p(float p, int min_keep);
  /// `uniform` decides whether it acts.
  void xtc(float probability, float threshold, int min_keep, double uniform);
  void temperature(float value);
  /// Zhu et al. 2024 (entropy-based dynamic temperature).
  void dynamic_temperature(float value, float range, float exponent);
  /// Keeps the k that Basu et al. 2021 (Mirostat) estimate for the surprise `mu`.
  void mirostat(float mu, int vocab);
  /// Mirostat 2: drops what surprises more than `mu` bits.
  void mirostat2(float mu);

  /// Softmax of the logits, [size()], in the list's order. Valid until the list changes.
  const std::vector<double>& probabilities();
  /// Index of the candidate that `uniform` falls on.
  size_t draw(double uniform);

  size_t size() const { return list_.size(); }
  const TokenLogprob& operator[](size_t i) const { return list_[i]; }
  /// Descending, ties to the lowest id.
  void sort();

 private:
  float highest() const;
  void keep(size_t count) { list_.resize(count); }
  double entropy();

  std::vector<TokenLogprob> list_;  // `logprob` holds the logit
  std::vector<double> probabilities_;
  bool sorted_ = false;
};

}  // namespace mlxcel
