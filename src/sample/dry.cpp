#include "sample/dry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace mlxcel {

Dry::Dry(const SamplingParams& p, std::shared_ptr<const TokenBytes> bytes)
    : multiplier_(p.dry_multiplier),
      base_(p.dry_base),
      allowed_(p.dry_allowed_length),
      window_(p.dry_penalty_last_n),
      breakers_(p.dry_breakers),
      bytes_(std::move(bytes)) {
  if (!breakers_.empty() && !bytes_)
    fail_param("dry_sequence_breakers",
               "dry_sequence_breakers: this model has no tokenizer to find them with");
  for (const auto& breaker : breakers_) longest_breaker_ = std::max(longest_breaker_, breaker.size());
}

// Looks at new tokens only: a breaker counts when its last byte is in one of them.
void Dry::follow(std::span<const int32_t> history) {
  if (breakers_.empty()) return;
  if (history.size() < seen_) {
    seen_ = after_break_ = 0;
    tail_.clear();
  }
  for (; seen_ < history.size(); ++seen_) {
    const auto token = static_cast<size_t>(history[seen_]);
    const size_t before = tail_.size();
    if (token < bytes_->size()) tail_ += (*bytes_)[token];
    for (const auto& breaker : breakers_) {
      const size_t from = before >= breaker.size() - 1 ? before - (breaker.size() - 1) : 0;
      if (tail_.find(breaker, from) != std::string::npos) after_break_ = seen_ + 1;
    }
    if (tail_.size() >= longest_breaker_) tail_.erase(0, tail_.size() - (longest_breaker_ - 1));
  }
}

const std::vector<std::pair<int32_t, float>>& Dry::penalties(std::span<const int32_t> history) {
  result_.clear();
  follow(history);
  const int unbroken = static_cast<int>(history.size() - std::min(after_break_, history.size()));
  if (window_ >= 0 && history.size() > static_cast<size_t>(window_))
    history = history.last(static_cast<size_t>(window_));
  const int n = static_cast<int>(history.size());
  const int limit = std::min(unbroken, n);
  if (n <= allowed_ || limit < allowed_) return result_;

  // lengths_[i]: how much of the end of `history` stands also at the end of its first n - i tokens. That is
  // the Z function of the text read backwards.
  const auto back = [&](int i) { return history[static_cast<size_t>(n - 1 - i)]; };
  lengths_.assign(static_cast<size_t>(n), 0);
  for (int i = 1, left = 0, right = 0; i < n; ++i) {
    int length = i < right ? std::min(right - i, lengths_[static_cast<size_t>(i - left)]) : 0;
    while (i + length < n && back(length) == back(i + length)) ++length;
    lengths_[static_cast<size_t>(i)] = length;
    if (i + length > right) left = i, right = i + length;
  }
  const auto entry = [&](int32_t token) -> std::pair<int32_t, float>& {
    const auto found =
        std::find_if(result_.begin(), result_.end(), [&](const auto& e) { return e.first == token; });
    if (found != result_.end()) return *found;
    return result_.emplace_back(token, -1.0f);
  };
  for (int i = 1; i < n; ++i) {
    const int length = std::min(lengths_[static_cast<size_t>(i)], limit);
    if (length < allowed_) continue;
    auto& longest = entry(back(i - 1));  // the token that followed there
    longest.second = std::max(longest.second, static_cast<float>(length));
  }
  // Beyond this power the penalty would leave the floats.
  constexpr float kLargest = 3.4e38f;
  for (auto& [token, value] : result_) {
    const double power = static_cast<double>(value) - allowed_;
    const double penalty = static_cast<double>(multiplier_) * std::pow(static_cast<double>(base_), power);
    value = static_cast<float>(std::min(penalty, static_cast<double>(kLargest)));
  }
  return result_;
}

}  // namespace mlxcel
