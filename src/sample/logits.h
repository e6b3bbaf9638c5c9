// Passes over a row of logits [vocab], written so that compilers vectorise them.
// Thread: any; plain memory. Sums run in one fixed order: equal input gives equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/sampler.h"

namespace mlxcel::logits {

struct Peak {
  float value = 0.0f;
  int32_t token = 0;   // ties to the lowest id
  bool finite = true;  // no NaN and no infinity in the row
};
Peak peak(std::span<const float> row);

/// exp((x - highest) * scale) for x <= highest and scale >= 0, within 2 ulp; 0 below 1e-38.
float weight(float x, float highest, float scale);

/// Sum over the row of weight(x, highest, scale).
double sum_weights(std::span<const float> row, float highest, float scale = 1.0f);

/// -infinity for every entry whose bit is not set (bit i of word i / 32).
void apply_mask(std::span<float> row, std::span<const uint32_t> mask);

/// Whether any entry is at least `lowest`.
bool any_from(std::span<const float> part, float lowest);

/// The last entry, in descending order with ties to the lowest id, of a set that filters keep.
struct Cut {
  float logit = 0.0f;
  int32_t token = 0;
  bool keeps(float x, int32_t id) const { return x > logit || (x == logit && id <= token); }
};
/// The shortest prefix of that order whose weight reaches `share` (less `slack`) of the row's. No ranking.
Cut nucleus(std::span<const float> row, float highest, double share, double slack);

/// The `count` highest entries, descending, ties to the lowest id; `logprob` holds the logit.
void select_top(std::span<const float> row, int count, std::vector<TokenLogprob>& out);

}  // namespace mlxcel::logits
