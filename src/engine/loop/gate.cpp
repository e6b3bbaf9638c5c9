#include "engine/loop/gate.h"

#include <algorithm>

#include "base/error.h"

namespace mlxcel {

Gate::Gate(const GrammarUse& use, std::shared_ptr<const TokenBytes> bytes, std::span<const TokenId> eos,
           int vocab_size)
    : bytes_(std::move(bytes)), after_(use.after), triggers_(use.triggers), matcher_(use.grammar->matcher()) {
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
}

TokenMask Gate::mask() {
  if (state_ == State::holds) return matcher_.mask();
  return state_ == State::thinking ? TokenMask(not_yet_) : TokenMask();
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
      return start(tail_.find_first_not_of(" \t\r\n") == std::string::npos ? "" : std::string(tail_));
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
