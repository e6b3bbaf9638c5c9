// A row's grammar in time: the answer is free until its reasoning has closed, and, with triggers, until one
// of them has been written; then every token obeys. A token that ends a thought or a trigger and goes on as
// the grammar does not is not offered. Owner: its sequence. Thread: made on its caller's, then model thread.
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
  /// A token inside which a text that opens the grammar ends, where its first `written` bytes stand already.
  struct Crossing {
    TokenId token;
    size_t opening, written;
    std::optional<bool> fits = {};  // whether the grammar goes on as the token does; asked when it matters
  };
  void start(std::string_view text);
  void look_for_trigger(TokenId token);
  void find_crossings();
  bool ends_thought(const Crossing& crossing) const { return !after_.empty() && crossing.opening == 0; }
  bool fits(const Crossing& crossing) const;
  bool goes_on(std::string_view text) const;
  TokenMask without_misfits(std::span<const uint32_t> open);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenBytes> bytes_;
  std::string after_;
  std::vector<GrammarUse::Trigger> triggers_;
  Matcher matcher_;
  State state_ = State::holds;
  std::string tail_;                   // text in which `after_` or a trigger may still end
  std::vector<uint32_t> not_yet_;      // everything but end tokens: a thought does not end the answer
  std::vector<std::string> openings_;  // `after_` first, if any; then triggers of text
  std::vector<Crossing> crossings_;    // by token, the most written first
  std::vector<uint32_t> mask_;
};

}  // namespace mlxcel
