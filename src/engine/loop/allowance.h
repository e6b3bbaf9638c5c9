// What a step may hold after an allocation has failed: fewer tokens, fewer rows; both grow back while nothing
// fails. Owner: the loop. Thread: model thread.
#pragma once

namespace mlxcel {

class Allowance {
 public:
  static constexpr int kNoLimit = 1 << 30;
  static constexpr int kCalmSteps = 32;  // after a failure, until more is tried again

  int tokens() const { return tokens_; }
  int rows() const { return rows_; }
  void cut_tokens(int to) { tokens_ = to, calm_ = 0; }
  void cut_rows(int to) { rows_ = to, calm_ = 0; }
  /// A step went well.
  void calm() {
    if ((tokens_ == kNoLimit && rows_ == kNoLimit) || ++calm_ % kCalmSteps != 0) return;
    tokens_ = tokens_ > kNoLimit / 2 ? kNoLimit : tokens_ * 2;
    rows_ = kNoLimit;
  }

 private:
  int tokens_ = kNoLimit;
  int rows_ = kNoLimit;
  int calm_ = 0;
};

}  // namespace mlxcel
