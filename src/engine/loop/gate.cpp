#include "engine/loop/gate.h"

#include <algorithm>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr const char* kSpace = " \t\r\n";

}  // namespace

Gate::Gate(const GrammarUse& use, std::shared_ptr<const TokenBytes> bytes, std::span<const TokenId> eos,
           int vocab_size)
    : grammar_(use.grammar),
      bytes_(std::move(bytes)),
      after_(use.after),
      triggers_(use.triggers),
      matcher_(use.grammar->matcher()) {
  for (const auto& trigger : triggers_) {
    if (trigger.kind == GrammarUse::Trigger::Kind::token) {
      if (trigger.token < 0 || trigger.token >= vocab_size)
        fail_param("grammar_triggers", "grammar_triggers: token {} is outside the vocabulary of {} tokens",
                   trigger.token, vocab_size);
    } else if (trigger.text.empty() || !use.grammar->matcher().accept_text(trigger.text)) {
      fail_param("grammar_triggers", "grammar_triggers: no answer under the grammar begins with \"{}\"",
                 trigger.text);
    }
  }
  state_ = !after_.empty() ? State::thinking : !triggers_.empty() ? State::waiting : State::holds;
  if (state_ == State::thinking && triggers_.empty()) {
    not_yet_.assign((static_cast<size_t>(vocab_size) + 31) / 32, ~uint32_t{0});
    for (const TokenId id : eos)
      if (id >= 0 && id < vocab_size) not_yet_[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
  }
  mask_.resize((static_cast<size_t>(vocab_size) + 31) / 32);
  if (state_ != State::holds) find_crossings();
}

void Gate::find_crossings() {
  if (!after_.empty()) openings_.push_back(after_);
  for (const auto& trigger : triggers_)
    if (trigger.kind == GrammarUse::Trigger::Kind::text) openings_.push_back(trigger.text);
  const size_t tokens = std::min(bytes_->size(), mask_.size() * 32);
  for (size_t token = 0; token < tokens; ++token) {
    const std::string_view text = (*bytes_)[token];
    const auto known = static_cast<ptrdiff_t>(crossings_.size());
    for (size_t o = 0; o < openings_.size(); ++o) {
      const std::string_view opening = openings_[o];
      if (text.size() > opening.size() && text.substr(0, text.size() - 1).find(opening) != text.npos)
        crossings_.push_back({static_cast<TokenId>(token), o, 0});
      for (size_t rest = std::min(opening.size(), text.size()); rest-- > 1;)
        if (text.starts_with(opening.substr(opening.size() - rest)))
          crossings_.push_back({static_cast<TokenId>(token), o, opening.size() - rest});
    }
    std::stable_sort(crossings_.begin() + known, crossings_.end(),
                     [](const Crossing& a, const Crossing& b) { return a.written > b.written; });
  }
  // These are asked about at every place; the others where a part of the opening stands.
  for (Crossing& crossing : crossings_)
    if (crossing.written == 0) crossing.fits = fits(crossing);
}

bool Gate::goes_on(std::string_view text) const { return grammar_->matcher().accept_text(text); }

bool Gate::fits(const Crossing& crossing) const {
  const std::string& opening = openings_[crossing.opening];
  const std::string text =
      opening.substr(0, crossing.written) + (*bytes_)[static_cast<size_t>(crossing.token)];
  const size_t at = text.find(opening);
  if (!ends_thought(crossing)) return goes_on(std::string_view(text).substr(at));
  const std::string_view rest = std::string_view(text).substr(at + opening.size());
  if (triggers_.empty()) return rest.find_first_not_of(kSpace) == rest.npos || goes_on(rest);
  size_t first = rest.npos;
  for (const auto& trigger : triggers_)
    if (trigger.kind == GrammarUse::Trigger::Kind::text) first = std::min(first, rest.find(trigger.text));
  return first == rest.npos || goes_on(rest.substr(first));
}

TokenMask Gate::without_misfits(std::span<const uint32_t> open) {
  bool any = false;
  TokenId decided = -1;
  for (Crossing& crossing : crossings_) {
    // What begins first opens: of a token's ways the one of which most is written.
    if (crossing.token == decided || ends_thought(crossing) != (state_ == State::thinking) ||
        !std::string_view(tail_).ends_with(
            std::string_view(openings_[crossing.opening]).substr(0, crossing.written)))
      continue;
    decided = crossing.token;
    if (!crossing.fits) crossing.fits = fits(crossing);
    if (*crossing.fits) continue;
    if (!any && open.empty()) std::fill(mask_.begin(), mask_.end(), ~uint32_t{0});
    if (!any && !open.empty()) std::copy(open.begin(), open.end(), mask_.begin());
    any = true;
    mask_[static_cast<size_t>(crossing.token) / 32] &= ~(uint32_t{1} << (crossing.token % 32));
  }
  return any ? TokenMask(mask_) : TokenMask(open);
}

TokenMask Gate::mask() {
  if (state_ == State::holds) return matcher_.mask();
  return without_misfits(state_ == State::thinking ? std::span<const uint32_t>(not_yet_)
                                                   : std::span<const uint32_t>());
}

void Gate::start(std::string_view text) {
  state_ = State::holds;
  tail_.clear();
  if (!text.empty() && !matcher_.accept_text(text))
    fail(ErrorKind::internal, "the grammar was to start inside a token, and \"{}\" does not fit it", text);
}

void Gate::accept(TokenId token) {
  if (state_ == State::holds) return matcher_.accept(token);
  const auto at = static_cast<size_t>(token);
  if (at < bytes_->size()) tail_ += (*bytes_)[at];
  if (state_ == State::thinking) {
    const size_t found = tail_.find(after_);
    if (found == std::string::npos) {
      if (tail_.size() >= after_.size()) tail_.erase(0, tail_.size() - (after_.size() - 1));
      return;
    }
    tail_.erase(0, found + after_.size());
    state_ = State::waiting;
    // White space in the token that closed the thought belongs to neither.
    if (triggers_.empty())
      return start(tail_.find_first_not_of(kSpace) == std::string::npos ? "" : std::string(tail_));
  }
  look_for_trigger(token);
}

void Gate::look_for_trigger(TokenId token) {
  size_t longest = 1, first = std::string::npos;
  for (const auto& trigger : triggers_) {
    if (trigger.kind == GrammarUse::Trigger::Kind::token) {
      if (trigger.token != token) continue;
      state_ = State::holds;
      tail_.clear();
      return matcher_.accept(token);
    }
    longest = std::max(longest, trigger.text.size());
    first = std::min(first, tail_.find(trigger.text));
  }
  if (first != std::string::npos) return start(std::string(tail_, first));
  if (tail_.size() >= longest) tail_.erase(0, tail_.size() - (longest - 1));
}

}  // namespace mlxcel
