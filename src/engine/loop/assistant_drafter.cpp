// Drafts by an assistant that keeps nothing: every token of a draft is guessed at the place of the row's last
// token, over the target's own keys and values. Nothing is committed: what a pass writes lies behind the
// rows' ends, where the target writes next.
#include <mlx/transforms.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "engine/loop/state_drafter.h"
#include "state/step.h"

namespace mlxcel {

int MtpDrafter::draft_by_assistant(std::span<DraftAsk> asks, int budget) {
  struct Guess {
    DraftAsk* ask;
    RowState* row;
    TokenId token;
    std::vector<float> state;  // of the token before
  };
  std::vector<Guess> guesses;
  for (DraftAsk& ask : asks) {
    const auto shown = rows_.find(ask.row);
    const auto met = met_.find(ask.row);
    if (ask.most <= 0 || shown == rows_.end() || met == met_.end()) continue;
    Row& row = shown->second;
    const int length = static_cast<int>(ask.tokens.size()), at = length - 2 - row.next;
    // The state of the last token that the target has evaluated; the one behind it is not yet.
    if (met->second->length() != length - 1 || at < 0 ||
        static_cast<size_t>(at) >= row.states.size() / width_)
      continue;
    (void)taken(row, at);
    row.base = row.next;  // nothing is fed
    guesses.push_back({.ask = &ask,
                       .row = met->second,
                       .token = ask.tokens.back(),
                       .state = {row.states.begin(), row.states.begin() + static_cast<ptrdiff_t>(width_)}});
  }
  int evaluated = 0, passes = 0;
  const TimePoint before = Clock::now();
  while (!guesses.empty() && evaluated + static_cast<int>(guesses.size()) <= budget) {
    Step step;
    std::vector<float> states;
    std::erase_if(guesses, [&](const Guess& guess) {
      try {
        step.add(guess.row, {&guess.token, 1}, Wants::last);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::out_of_memory) throw;
        return true;
      }
      states.insert(states.end(), guess.state.begin(), guess.state.end());
      return false;
    });
    if (guesses.empty()) break;
    step.seal();
    const int rows = static_cast<int>(guesses.size()), width = static_cast<int>(width_);
    const auto [logits, out] = (*assistant_)(step, array(states.data(), {rows, width}, mx::float32));
    const array likely = mx::contiguous(mx::astype(logits, mx::float32));
    const array next = mx::contiguous(mx::astype(out, mx::float32));
    std::vector<array> outputs = step.pending();
    outputs.insert(outputs.end(), {likely, next});
    mx::eval(std::move(outputs));
    evaluated += rows;
    ++passes;
    const auto vocab = static_cast<size_t>(vocab_);
    size_t at = 0;
    std::erase_if(guesses, [&](Guess& guess) {
      const size_t own = at++;
      if (!propose(*guess.ask, {likely.data<float>() + own * vocab, vocab}, o_.vocab, o_.p_min)) return true;
      guess.token = guess.ask->draft.back();
      guess.state.assign(next.data<float>() + own * width_, next.data<float>() + (own + 1) * width_);
      return false;
    });
  }
  if (passes > 0) {
    const double each = milliseconds_between(before, Clock::now()) / passes;
    pass_ms_ = pass_ms_ == 0.0 ? each : pass_ms_ + 0.1 * (each - pass_ms_);
  }
  return evaluated;
}

}  // namespace mlxcel
