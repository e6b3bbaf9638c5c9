#include "engine/loop/state_drafter.h"

#include <mlx/transforms.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "state/step.h"

namespace mlxcel {

void StateDrafter::keep_only(std::span<const uint64_t> rows) {
  std::erase_if(
      rows_, [&](const auto& held) { return std::find(rows.begin(), rows.end(), held.first) == rows.end(); });
}

void StateDrafter::observe(uint64_t id, int position, int count, const float* states) {
  auto found = rows_.find(id);
  if (found == rows_.end()) found = rows_.emplace(id, Row{store_.make_row(), position, position, {}}).first;
  Row& row = found->second;
  if (position < row.next || position > row.next + static_cast<int>(row.states.size() / width_))
    row = Row{store_.make_row(), position, position, {}};  // a gap, or what was fed is no more: anew
  row.states.resize(static_cast<size_t>(position - row.next) * width_);  // behind are rejected drafts
  row.states.insert(row.states.end(), states, states + static_cast<size_t>(count) * width_);
  const size_t waiting = row.states.size() / width_;
  if (waiting <= 2 * kMostPending) return;
  const size_t gone = waiting - kMostPending;
  row.states.erase(row.states.begin(), row.states.begin() + static_cast<ptrdiff_t>(gone * width_));
  row.base = row.next += static_cast<int>(gone);
  row.state = store_.make_row();
}

std::vector<float> StateDrafter::taken(Row& row, int count) const {
  const auto end = row.states.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(count) * width_);
  std::vector<float> states(row.states.begin(), end);
  row.states.erase(row.states.begin(), end);
  row.next += count;
  return states;
}

array StateDrafter::joined(const std::vector<Part>& parts) const {
  std::vector<float> states;
  for (const Part& part : parts) states.insert(states.end(), part.states.begin(), part.states.end());
  return array(states.data(), {static_cast<int>(states.size() / width_), static_cast<int>(width_)},
               mx::float32);
}

MtpDrafter::MtpDrafter(std::shared_ptr<const MtpHead> head, const Options& options)
    : StateDrafter(head->layout(), head->vocab(), head->hidden(), options), head_(std::move(head)) {}

MtpDrafter::MtpDrafter(SideMtp side, const Options& options)
    : StateDrafter(side.block ? side.block->layout() : StateLayout(),
                   side.block ? side.block->vocab() : side.assistant->vocab(),
                   side.block ? side.block->hidden() : side.assistant->width(), options),
      head_(std::move(side.block)),
      assistant_(std::move(side.assistant)) {}

int MtpDrafter::draft(std::span<DraftAsk> asks, int budget) {
  const int evaluated = assistant_ ? draft_by_assistant(asks, budget) : draft_by_block(asks, budget);
  met_.clear();
  return evaluated;
}

int MtpDrafter::draft_by_block(std::span<DraftAsk> asks, int budget) {
  const Network network = [this](Step& step, const std::vector<Part>& parts) -> Given {
    auto [logits, out] = (*head_)(step, joined(parts));
    return {std::move(logits), std::move(out)};
  };
  int evaluated = 0;
  std::vector<Part> parts;
  for (DraftAsk& ask : asks) {
    const auto found = rows_.find(ask.row);
    if (ask.most <= 0 || found == rows_.end()) continue;
    Row& row = found->second;
    const int length = static_cast<int>(ask.tokens.size()), fed = row.next - row.base;
    if (row.state.length() > fed) row.state.truncate(fed);  // guesses of last time
    // The state of token i goes with token i + 1; that of the last token is not computed yet.
    const int due = std::min(length - 1 - row.next, static_cast<int>(row.states.size() / width_));
    const int count = std::min(due, std::max(budget - evaluated, 0));
    if (count <= 0 || fed + due + ask.most > o_.context) continue;
    const auto tokens = ask.tokens.subspan(static_cast<size_t>(row.next) + 1, static_cast<size_t>(count));
    parts.push_back({.ask = &ask,
                     .state = &row.state,
                     .tokens = {tokens.begin(), tokens.end()},
                     .wants = row.next + count == length - 1 ? Wants::last : Wants::none,
                     .states = taken(row, count)});
    evaluated += count;
  }
  if (parts.empty()) return 0;
  std::vector<uint64_t> begun;
  for (const Part& part : parts) begun.push_back(part.ask->row);
  try {
    evaluate(parts, network);
    std::erase_if(parts, [](const Part& part) { return part.wants == Wants::none; });
    return evaluated +
           go_on(parts, network, [this](Part& part) { part.states.assign(part.out, part.out + width_); });
  } catch (...) {
    for (const uint64_t row : begun) forget(row);  // their states were taken
    throw;
  }
}

DflashDrafter::DflashDrafter(std::shared_ptr<const DflashHead> head, const Options& options)
    : StateDrafter(head->layout(), options.vocab, head->width(), options), head_(std::move(head)) {}

/// Puts the waiting states behind what the rows hold; in `parts` are then those that have caught up.
int DflashDrafter::remember(std::span<DraftAsk> asks, int budget, std::vector<Part>& parts) {
  int evaluated = 0;
  for (DraftAsk& ask : asks) {
    const auto found = rows_.find(ask.row);
    if (ask.most <= 0 || found == rows_.end()) continue;
    Row& row = found->second;
    const int length = static_cast<int>(ask.tokens.size()), fed = row.next - row.base;
    const int due = std::min(length - 1 - row.next, static_cast<int>(row.states.size() / width_));
    const int count = std::min(due, std::max(budget - evaluated, 0));
    if (count <= 0 || fed + due + ask.most + 1 > o_.context) continue;
    const auto tokens = ask.tokens.subspan(static_cast<size_t>(row.next), static_cast<size_t>(count));
    parts.push_back({.ask = &ask,
                     .state = &row.state,
                     .tokens = {tokens.begin(), tokens.end()},
                     .wants = Wants::none,
                     .states = taken(row, count)});
    evaluated += count;
  }
  if (parts.empty()) return 0;
  evaluate(parts, [this](Step& step, const std::vector<Part>& own) -> Given {
    return {head_->remember(step, joined(own))};
  });
  std::erase_if(parts, [&](const Part& part) {
    return rows_.at(part.ask->row).next != static_cast<int>(part.ask->tokens.size()) - 1;
  });
  return evaluated;
}

/// One evaluation of all blocks. It is not committed: what it wrote lies behind the rows' ends.
void DflashDrafter::guess(std::vector<Part>& parts) {
  const DflashHead::Form& form = head_->form();
  Step step;
  std::vector<int> counts;
  std::erase_if(parts, [&](Part& part) {
    const int wanted = std::min(part.ask->most, form.proposals);
    part.tokens.assign(static_cast<size_t>(wanted + (form.in_place ? 1 : 0)), form.mask);
    part.tokens.front() = part.ask->tokens.back();
    try {
      step.add(part.state, part.tokens, Wants::all);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      forget(part.ask->row);
      return true;
    }
    counts.push_back(wanted);
    return false;
  });
  if (parts.empty()) return;
  step.seal();
  const array logits = mx::contiguous(mx::astype(head_->guess(step), mx::float32));
  std::vector<array> outputs = step.pending();
  outputs.push_back(logits);
  mx::eval(std::move(outputs));
  const auto vocab = static_cast<size_t>(head_->vocab());
  const float* at = logits.data<float>();
  for (size_t p = 0; p < parts.size(); ++p) {
    DraftAsk& ask = *parts[p].ask;
    const float* row = at + (form.in_place ? vocab : 0);
    for (int i = 0; i < counts[p]; ++i, row += vocab) {
      const TokenId before = ask.draft.empty() ? ask.tokens.back() : ask.draft.back();
      const auto corrected = head_->corrected({row, vocab}, before);
      if (!propose(ask, corrected.empty() ? std::span<const float>(row, vocab) : corrected, o_.vocab,
                   o_.p_min))
        break;
    }
    at += parts[p].tokens.size() * vocab;
  }
}

int DflashDrafter::draft(std::span<DraftAsk> asks, int budget) {
  std::vector<Part> parts;
  std::vector<uint64_t> begun;
  for (const DraftAsk& ask : asks) begun.push_back(ask.row);
  try {
    int evaluated = remember(asks, budget, parts);
    if (parts.empty()) return evaluated;
    const TimePoint before = Clock::now();
    guess(parts);
    const double own = milliseconds_between(before, Clock::now());
    once_ms_ = once_ms_ == 0.0 ? own : once_ms_ + 0.1 * (own - once_ms_);
    for (const Part& part : parts) evaluated += static_cast<int>(part.tokens.size());
    return evaluated;
  } catch (...) {
    for (const uint64_t row : begun) forget(row);
    throw;
  }
}

}  // namespace mlxcel
