// What a drafter needs to know: what followed a text's last tokens when they stood there before, what a step
// costs, and how many tokens are worth drafting. Owner: its sequence (DraftWidth), the loop (StepCost).
// Thread: model thread; plain memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace mlxcel {

/// The `most` tokens that followed the earlier place that ends most like `text` does (two tokens at least; of
/// places alike the latest). Where the text ends before, what is drafted goes on as the text: a pattern that
/// repeats repeats again.
inline std::vector<TokenId> looked_up(std::span<const TokenId> text, int most) {
  constexpr size_t kLeast = 2, kEnough = 32;  // tokens in common; few of them name many places
  if (most <= 0 || text.size() <= kLeast) return {};
  size_t best = 0, from = 0;
  for (size_t end = text.size() - 1; end >= kLeast && best < kEnough; --end) {
    size_t alike = 0;
    while (alike < kEnough && alike < end && text[end - 1 - alike] == text[text.size() - 1 - alike]) ++alike;
    if (alike > best) best = alike, from = end;
  }
  std::vector<TokenId> draft;
  if (best < kLeast) return draft;
  for (; draft.size() < static_cast<size_t>(most); ++from)
    draft.push_back(from < text.size() ? text[from] : draft[from - text.size()]);
  return draft;
}

/// What a step costs by its tokens, from measured small steps: fixed + each * tokens.
class StepCost {
 public:
  static constexpr int kSmall = 64;
  void observe(int tokens, double ms) {
    if (tokens > kSmall || ms <= 0.0) return;
    const double t = tokens;
    for (double* sum : {&n_, &t_, &tt_, &y_, &ty_}) *sum *= 0.99;
    n_ += 1.0, t_ += t, tt_ += t * t, y_ += ms, ty_ += t * ms;
  }
  /// Milliseconds of a step with that many tokens; 0: not known yet.
  double whole(int tokens) const {
    const double spread = n_ * tt_ - t_ * t_;
    if (n_ < 4.0) return 0.0;
    if (spread < 1e-3 * n_ * n_) return y_ / n_;
    const double each = std::max(0.0, (n_ * ty_ - t_ * y_) / spread);
    return std::max(0.0, (y_ - each * t_) / n_ + each * tokens);
  }
  /// How much longer a step gets by one more token, as a part of the step with `tokens`.
  double share(int tokens) const {
    const double spread = n_ * tt_ - t_ * t_;
    if (n_ < 4.0 || spread < 1e-3 * n_ * n_) return 0.15;  // not known yet: a guess that lets it be measured
    const double each = std::max(0.0, (n_ * ty_ - t_ * y_) / spread);
    const double whole = (y_ - each * t_) / n_ + each * tokens;
    return whole > 0.0 ? std::clamp(each / whole, 0.0, 1.0) : 1.0;
  }

 private:
  double n_ = 0, t_ = 0, tt_ = 0, y_ = 0, ty_ = 0;
};

/// How many tokens a row's next draft may have, from how its drafts fared.
class DraftWidth {
 public:
  static constexpr int kMost = 64;      // rows can be taken back so far (kRollbackTokens)
  static constexpr int kDrafted = 16;   // of one by a model
  static constexpr int kLooked = 7;     // of one that is looked up
  static constexpr int kShort = 2;      // of one that is looked up while nothing is known
  static constexpr int kCopied = 31;    // of one that is looked up while the text is copied on and on
  static constexpr int kMisses = 4;     // of them in a row, behind which there is a pause
  static constexpr int kPause = 8;      // tokens
  static constexpr int kPredicted = 4;  // of one by the checkpoint's own block
  static constexpr int kRetry = 32;     // tokens after which a row whose drafts failed tries again

  /// 0: no draft now. `dearer`: what one more token of the draft costs, in steps without drafts; `once`: what
  /// any draft does, however long.
  int next(double dearer, int most, double once = 0.0) {
    if (idle_ > 0) {
      --idle_;
      return 0;
    }
    int best = 0;
    double gain = 1.02, sum = 1.0, power = 1.0;
    for (int k = 1; k <= std::min(most, kMost); ++k) {
      sum += power *= rate_;
      const double now = sum / (1.0 + once + dearer * k);
      if (now > gain) gain = now, best = k;
    }
    if (best > 0) return best;
    idle_ = kRetry;
    rate_ = std::max(rate_, 0.5);  // the next try starts with an open mind, and one failure ends it again
    return 0;
  }
  void observe(int drafted, int accepted) {
    // The tokens that were tried: those accepted, and the one that was not.
    const int tried = std::min(drafted, accepted + 1);
    for (int i = 0; i < tried; ++i) rate_ += 0.25 * ((i < accepted ? 1.0 : 0.0) - rate_);
  }
  double rate() const { return rate_; }

  /// Prompt lookup's: short drafts until one was right throughout, then long ones, and twice as long behind
  /// every long one that was; behind one that was wrong from its first token none for a while. `gated`: no
  /// short ones.
  int next_looked_up(bool gated, int most) {
    if (idle_ > 0) {
      --idle_;
      return 0;
    }
    const int grade = trust_ > 0 ? ((kLooked + 1) << (trust_ - 1)) - 1 : gated ? kLooked : kShort;
    return std::min({most, grade, kCopied});
  }
  void observe_looked_up(int drafted, int accepted, bool gated) {
    observe(drafted, accepted);
    if (accepted == drafted)
      trust_ = std::min(trust_ + 1, kMostTrust);
    else
      trust_ = trust_ > 0 && accepted >= kShort ? 1 : 0;
    if (accepted == 0 && (gated || ++missed_ >= kMisses)) idle_ = kPause, missed_ = 0;
    if (accepted > 0) missed_ = 0;
  }

 private:
  double rate_ = 0.7;  // chance that a drafted token is the one drawn
  int idle_ = 0, missed_ = 0;
  static constexpr int kMostTrust = 3;  // which is kCopied
  int trust_ = 0;                       // drafts looked up in a row that were right throughout
};

}  // namespace mlxcel
