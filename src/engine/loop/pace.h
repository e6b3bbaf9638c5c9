// How many tokens a step may hold while rows decode, so that it stays under the allowed gap: learned from
// measured steps, or fixed. Owner: the loop. Thread: model thread writes, any reads budget().
#pragma once

#include <algorithm>
#include <atomic>

namespace mlxcel {

class Pace {
 public:
  static constexpr int kLeast = 16;
  static constexpr int kMost = 4096;

  /// `fixed` 0: learn.
  Pace(int fixed, double gap_ms) : fixed_(fixed), gap_ms_(gap_ms), budget_(fixed > 0 ? fixed : kLeast) {}

  void observe(int tokens, double step_ms) {
    if (fixed_ > 0 || tokens < kLeast / 2 || step_ms <= 0.0) return;
    const double rate = tokens / step_ms;
    // Down at once, up by halves: one slow step is a gap already seen, one fast one may be luck.
    rate_ = rate_ == 0.0 || rate < rate_ ? rate : rate_ + 0.5 * (rate - rate_);
    budget_ = static_cast<int>(
        std::clamp(rate_ * gap_ms_, static_cast<double>(kLeast), static_cast<double>(kMost)));
  }
  int budget() const { return budget_; }

 private:
  int fixed_;
  double gap_ms_;
  double rate_ = 0.0;  // tokens a millisecond
  std::atomic<int> budget_;
};

}  // namespace mlxcel
