// How many tokens a step may hold while rows decode, so that it stays under the allowed gap: steered by what
// steps took, or fixed. Owner: the loop. Thread: model thread
// observes, any reads budget().
#pragma once

#include <algorithm>
#include <atomic>

namespace mlxcel {

class Pace {
 public:
  static constexpr int kLeast = 16;
  static constexpr int kMost = 4096;
  static constexpr double kAim = 0.8;  // of the gap: draws, admission and a busy machine need the rest

  /// `fixed` 0: learn.
  Pace(int fixed, double gap_ms)
      : fixed_(fixed), aim_ms_(kAim * gap_ms), budget_(fixed > 0 ? fixed : kLeast) {}

  /// A step of `tokens` took `ms`. `mixed`: rows decoded in it beside a part of a prompt. Those steer the
  /// budget, for only they tell what such a step costs at the lengths at hand; a step of prompts alone tells
  /// a start.
  void observe(int tokens, double ms, bool mixed) {
    if (const int fixed = fixed_; fixed > 0) {
      budget_ = fixed;
      return;
    }
    if (ms <= 0.0 || tokens < kLeast / 2) return;
    const int now = budget_;
    const double wanted = tokens * aim_ms_ / ms;
    if (!mixed) {
      if (!steered_ && tokens >= kLeast) set(kStart * wanted);
      return;
    }
    steered_ = true;
    // Down at once, but one slow step of a busy machine is no law; up by a quarter, and only from steps that
    // were about as large as they might have been.
    if (wanted < now)
      set(std::max(wanted, 0.5 * now));
    else if (4 * tokens >= 3 * now)
      set(std::min(wanted, 1.25 * now + 1.0));
  }
  int budget() const { return budget_; }
  /// From now on; 0: learn, from what it is. Any thread.
  void fix(int tokens) {
    fixed_ = tokens;
    if (tokens > 0) budget_ = tokens;
  }

 private:
  static constexpr double kStart = 0.5;  // small steps are slower than large ones, by the token

  void set(double tokens) {
    budget_ = static_cast<int>(std::clamp(tokens, static_cast<double>(kLeast), static_cast<double>(kMost)));
  }

  std::atomic<int> fixed_;
  double aim_ms_;
  bool steered_ = false;
  std::atomic<int> budget_;
};

}  // namespace mlxcel
