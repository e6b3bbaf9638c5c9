// A row's grammar in time: the answer is free until its reasoning has closed, and, with triggers, until one
// of them has been written; then every token obeys. Owner: its sequence. Thread: model thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sample/sampler.h"
#include "text/grammar/grammar.h"

namespace mlxcel {

class Gate {
 public:
  /// Throws invalid_request for a trigger that the grammar does not begin with.
  Gate(const GrammarUse& use, std::shared_ptr<const TokenBytes> bytes, std::span<const TokenId> eos,
       int vocab_size);

  /// What may come next; empty: anything.
  TokenMask mask();
  /// The token that was drawn; not for end tokens.
  void accept(TokenId token);
  /// How many of these the grammar would take; all while it does not hold yet.
  size_t would_take(std::span<const TokenId> drafts) {
    return state_ == State::holds ? matcher_.would_take(drafts) : drafts.size();
  }
  /// The answer is whole: nothing may follow.
  bool complete() const { return state_ == State::holds && matcher_.complete(); }

 private:
  enum class State { thinking, waiting, holds };
  void start(std::string_view text);
  void look_for_trigger(TokenId token);

  std::shared_ptr<const TokenBytes> bytes_;
  std::string after_;
  std::vector<GrammarUse::Trigger> triggers_;
  Matcher matcher_;
  State state_ = State::holds;
  std::string tail_;               // text in which `after_` or a trigger may still end
  std::vector<uint32_t> not_yet_;  // everything but end tokens: a thought does not end the answer
};

}  // namespace mlxcel
