#include "engine/loop/mtp_drafter.h"

#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "state/step.h"

namespace mlxcel {

/// A row's tokens in one evaluation, each with the state of the token before it.
struct MtpDrafter::Part {
  DraftAsk* ask;
  Row* row;
  std::vector<TokenId> tokens;
  std::vector<float> states;
  Wants wants;
  const float* logits = nullptr;
};

MtpDrafter::MtpDrafter(std::shared_ptr<const MtpHead> head, const ModelDrafter::Options& options)
    : head_(std::move(head)),
      o_(options),
      store_(head_->layout(),
             StoreOptions{.kv_dtype = options.kv_dtype,
                          .max_tokens = (static_cast<size_t>(options.context) + kPageTokens) *
                                        static_cast<size_t>(options.rows)}) {}

void MtpDrafter::keep_only(std::span<const uint64_t> rows) {
  std::erase_if(
      rows_, [&](const auto& held) { return std::find(rows.begin(), rows.end(), held.first) == rows.end(); });
}

void MtpDrafter::observe(uint64_t id, int position, int count, const float* states) {
  auto found = rows_.find(id);
  if (found == rows_.end())
    found = rows_.emplace(id, Row{store_.make_row(), position, position, {}, {}}).first;
  Row& row = found->second;
  const auto width = static_cast<size_t>(head_->hidden());
  if (position < row.next || position > row.next + static_cast<int>(row.states.size() / width))
    row = Row{store_.make_row(), position, position, {}, {}};  // a gap, or what was fed is no more: anew
  row.states.resize(static_cast<size_t>(position - row.next) * width);  // behind are rejected drafts
  row.states.insert(row.states.end(), states, states + static_cast<size_t>(count) * width);
  const size_t waiting = row.states.size() / width;
  if (waiting <= 2 * kMostPending) return;
  const size_t gone = waiting - kMostPending;
  row.states.erase(row.states.begin(), row.states.begin() + static_cast<ptrdiff_t>(gone * width));
  row.base = row.next += static_cast<int>(gone);
  row.state = store_.make_row();
}

void MtpDrafter::evaluate(std::vector<Part>& parts) {
  Step step;
  std::erase_if(parts, [&](Part& part) {
    try {
      step.add(&part.row->state, part.tokens, part.wants);
      return false;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      rows_.erase(part.ask->row);
      return true;
    }
  });
  if (parts.empty()) return;
  step.seal();
  const int width = head_->hidden();
  std::vector<float> states;
  for (const Part& part : parts) states.insert(states.end(), part.states.begin(), part.states.end());
  auto [logits, out] = (*head_)(step, array(states.data(), {step.count(), width}, mx::float32));
  logits_.emplace(mx::contiguous(mx::astype(logits, mx::float32)));
  out_.emplace(mx::contiguous(mx::astype(out, mx::float32)));
  std::vector<array> outputs = step.pending();
  outputs.push_back(*logits_);
  outputs.push_back(*out_);
  mx::eval(std::move(outputs));
  step.commit();
  const float* at = logits_->data<float>();
  size_t token = 0;
  for (Part& part : parts) {
    token += part.tokens.size();
    const float* last = out_->data<float>() + (token - 1) * static_cast<size_t>(width);
    part.row->last.assign(last, last + width);
    if (part.wants == Wants::none) continue;
    part.logits = at;
    at += head_->vocab();
  }
}

int MtpDrafter::draft(std::span<DraftAsk> asks, int budget) {
  const auto width = static_cast<size_t>(head_->hidden());
  int evaluated = 0;
  std::vector<Part> parts;
  for (DraftAsk& ask : asks) {
    const auto found = rows_.find(ask.row);
    if (ask.most <= 0 || found == rows_.end()) continue;
    Row& row = found->second;
    const int length = static_cast<int>(ask.tokens.size()), fed = row.next - row.base;
    if (row.state.length() > fed) row.state.truncate(fed);  // guesses of last time
    // The state of token i goes with token i + 1; that of the last token is not computed yet.
    const int due = std::min(length - 1 - row.next, static_cast<int>(row.states.size() / width));
    const int count = std::min(due, std::max(budget - evaluated, 0));
    if (count <= 0 || fed + due + ask.most > o_.context) continue;
    const auto tokens = ask.tokens.subspan(static_cast<size_t>(row.next) + 1, static_cast<size_t>(count));
    const auto states = row.states.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(count) * width);
    row.next += count;
    parts.push_back({.ask = &ask,
                     .row = &row,
                     .tokens = {tokens.begin(), tokens.end()},
                     .states = {row.states.begin(), states},
                     .wants = row.next == length - 1 ? Wants::last : Wants::none});
    row.states.erase(row.states.begin(), states);
    evaluated += count;
  }
  if (parts.empty()) return 0;
  try {
    evaluate(parts);
  } catch (...) {
    for (const Part& part : parts) rows_.erase(part.ask->row);
    throw;
  }
  std::erase_if(parts, [](const Part& part) { return part.wants == Wants::none; });
  int passes = 0;
  const TimePoint before = Clock::now();
  while (true) {
    std::erase_if(parts, [&](Part& part) {
      return !propose(*part.ask, {part.logits, static_cast<size_t>(head_->vocab())}, o_.vocab, o_.p_min);
    });
    if (parts.empty()) break;
    for (Part& part : parts) {
      part.tokens = {part.ask->draft.back()};
      part.states = part.row->last;
    }
    evaluated += static_cast<int>(parts.size());
    evaluate(parts);
    ++passes;
  }
  if (passes > 0) {
    const double each = milliseconds_between(before, Clock::now()) / passes;
    pass_ms_ = pass_ms_ == 0.0 ? each : pass_ms_ + 0.1 * (each - pass_ms_);
  }
  logits_.reset();
  out_.reset();
  return evaluated;
}

}  // namespace mlxcel
