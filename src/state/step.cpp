#include "state/step.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "state/pages.h"
#include "state/step_pages.h"

namespace mlxcel {

Step::Step() = default;

Step::~Step() {
  if (!pages_) return;
  // Not committed: pools that were never computed go back to what they were before this step, so that the
  // store does not hold on to a graph that may have failed.
  // Last first: layers that read another's keys write them again.
  for (auto at = pages_->written.rbegin(); at != pages_->written.rend(); ++at) {
    const Pages::Written& written = *at;
    KvPlace& place = pages_->store->places[static_cast<size_t>(written.slot)];
    const auto undo = [](std::optional<array>& pool, const array& put) {
      if (pool->id() == put.id() && put.status() == array::Status::unscheduled && !put.inputs().empty())
        pool = array(put.inputs()[0]);
    };
    undo(place.keys, written.keys);
    if (written.values) undo(place.values, *written.values);
    if (written.plain) undo(place.plain, *written.plain);
  }
}

void Step::add(RowState* state, std::span<const int32_t> tokens, Wants wants, const AdapterSet* adapters,
               int second) {
  if (tokens_) fail(ErrorKind::internal, "step: add() after seal()");
  if (tokens.empty()) fail(ErrorKind::internal, "step: row {} has no tokens", rows_.size());
  StateStore::Impl* store = nullptr;
  for (const StepRow& row : rows_) {
    if ((row.state == nullptr) != (state == nullptr))
      fail(ErrorKind::internal, "step: rows with and without memory");
    if (state && row.state == state)
      fail(ErrorKind::internal, "step: row {} has the state of an earlier row", rows_.size());
    if (row.state) store = row.state->impl().store;
  }
  if (state && store && state->impl().store != store) fail(ErrorKind::internal, "step: rows of two stores");

  const int first = this->count(), added = static_cast<int>(tokens.size());
  const int position = state ? state->length() : 0;
  if (state) state->reserve(added);
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  for (int i = 0; i < added; ++i) position_ids_.push_back(position + i);
  const int known = state ? state->horizon() : 0;
  rows_.push_back({.state = state,
                   .first = first,
                   .count = added,
                   .wants = wants,
                   .position = position,
                   .horizon = known > 0 ? known : position + added,
                   .second = second,
                   .adapters = adapters});
  offsets_.push_back(first + added);
  if (wants == Wants::last) wanted_.push_back(first + added - 1);
  if (wants == Wants::all)
    for (int i = 0; i < added; ++i) wanted_.push_back(first + i);
}

void Step::open(int tokens, std::optional<array> before) {
  if (tokens_ || rows_.empty() || tokens < 1 || tokens > rows_.back().count ||
      (before && (before->ndim() != 2 || before->shape(0) != tokens)))
    fail(ErrorKind::internal, "step: a draft of {} tokens, logits {}", tokens,
         before ? to_string(before->shape()) : "none");
  rows_.back().open = tokens;
  rows_.back().before = std::move(before);
}

void Step::seal() {
  if (tokens_) fail(ErrorKind::internal, "step: sealed twice");
  if (rows_.empty()) fail(ErrorKind::internal, "step: no rows");
  tokens_ = array(ids_.begin(), {count()}, mx::int32);
  positions_ = array(position_ids_.begin(), {count()}, mx::int32);
}

Step::Pages& Step::pages() {
  if (!tokens_) fail(ErrorKind::internal, "step: used before seal()");
  if (!rows_[0].state) fail(ErrorKind::internal, "attend: the step's rows have no memory");
  if (!pages_) {
    pages_ = std::make_unique<Pages>();
    pages_->store = rows_[0].state->impl().store;
    pages_->rows.resize(pages_->store->groups.size());
    pages_->places.resize(pages_->store->groups.size());
  }
  return *pages_;
}

const std::shared_ptr<const kernels::AttentionRows>& Step::Pages::rows_of(const Step& step, int group) {
  auto& made = rows[static_cast<size_t>(group)];
  if (made) return made;
  auto fresh = std::make_shared<kernels::AttentionRows>();
  for (const StepRow& row : step.rows()) {
    const auto& table = row.state->impl().tables[static_cast<size_t>(group)];
    const auto used =
        (static_cast<size_t>(row.position) + static_cast<size_t>(row.count) + kPageTokens - 1) / kPageTokens;
    fresh->rows.push_back(
        {row.first, row.count, row.position, static_cast<int>(fresh->tables.size()), row.open});
    fresh->tables.insert(fresh->tables.end(), table.begin(),
                         table.begin() + static_cast<std::ptrdiff_t>(used));
  }
  made = std::move(fresh);
  return made;
}

const array& Step::Pages::old_keys(const Step& step, int recent) {
  for (const auto& [known, bits] : old)
    if (known == recent) return bits;
  int pages = 1;
  for (const StepRow& row : step.rows())
    pages = std::max(pages, (row.position + row.count + kPageTokens - 1) / kPageTokens);
  std::vector<uint32_t> words(static_cast<size_t>(step.count()) * static_cast<size_t>(pages));
  for (const StepRow& row : step.rows())
    for (int i = 0; i < row.count; ++i) {
      uint32_t* const own = words.data() + static_cast<size_t>(row.first + i) * static_cast<size_t>(pages);
      const int end = std::min(row.position + i, row.position + row.count - row.open) - recent + 1;
      for (int page = 0; page * kPageTokens < end; ++page) {
        const int keys = std::min(end - page * kPageTokens, kPageTokens);
        own[page] = keys == kPageTokens ? ~0u : (1u << keys) - 1u;
      }
    }
  old.emplace_back(recent, array(words.data(), {step.count(), 1, pages}, mx::uint32));
  return old.back().second;
}

const std::pair<array, array>& Step::Pages::places_of(const Step& step, int group) {
  auto& made = places[static_cast<size_t>(group)];
  if (made) return *made;
  std::vector<int32_t> pages, lanes;
  for (const StepRow& row : step.rows()) {
    const auto& table = row.state->impl().tables[static_cast<size_t>(group)];
    for (int t = row.position; t < row.position + row.count; ++t) {
      pages.push_back(table[static_cast<size_t>(t / kPageTokens)]);
      lanes.push_back(t % kPageTokens);
    }
  }
  const Shape shape{static_cast<int>(pages.size())};
  made.emplace(array(pages.begin(), shape, mx::int32), array(lanes.begin(), shape, mx::int32));
  return *made;
}

array Step::recurrent(int slot) {
  if (!tokens_) fail(ErrorKind::internal, "step: used before seal()");
  if (!rows_[0].state) fail(ErrorKind::internal, "recurrent slot {}: the step's rows have no memory", slot);
  const auto& specs = rows_[0].state->impl().store->layout.recurrent();
  const RecurrentSpec& spec = specs.at(static_cast<size_t>(slot));
  const auto part = [&](size_t r) -> const RecurrentPart& {
    return rows_[r].state->impl().recurrent[static_cast<size_t>(slot)];
  };
  // The rows of the last step in the same order: their array as it is, without a copy.
  const auto& whole = part(0).stack;
  bool same = whole && whole->shape(0) == static_cast<int>(rows_.size());
  for (size_t r = 0; same && r < rows_.size(); ++r)
    same = part(r).stack && part(r).stack->id() == whole->id() && part(r).index == static_cast<int>(r);
  if (same) return *whole;

  Shape one = spec.shape;
  one.insert(one.begin(), 1);
  std::vector<array> parts;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const RecurrentPart& held = part(r);
    if (!held.stack) {
      parts.push_back(mx::zeros(one, mx::float32));
      continue;
    }
    Shape start(one.size(), 0), stop = held.stack->shape();
    start[0] = held.index;
    stop[0] = held.index + 1;
    parts.push_back(held.stack->shape(0) == 1 ? *held.stack : mx::slice(*held.stack, start, stop));
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

void Step::set_recurrent(int slot, const array& value) {
  if (!tokens_ || !rows_[0].state)
    fail(ErrorKind::internal, "recurrent slot {}: the step's rows have no memory", slot);
  const auto& specs = rows_[0].state->impl().store->layout.recurrent();
  const RecurrentSpec& spec = specs.at(static_cast<size_t>(slot));
  Shape want = spec.shape;
  want.insert(want.begin(), static_cast<int>(rows_.size()));
  if (value.shape() != want)
    fail(ErrorKind::internal, "recurrent slot {} ({}): {}, expected {}", slot, spec.name,
         to_string(value.shape()), to_string(want));
  recurrent_.resize(specs.size());
  recurrent_[static_cast<size_t>(slot)] = mx::astype(value, mx::float32);
}

std::vector<array> Step::pending() const {
  std::vector<array> result;
  for (const auto& value : recurrent_)
    if (value) result.push_back(*value);
  if (pages_)
    for (const Pages::Written& written : pages_->written) {
      result.push_back(written.keys);
      if (written.values) result.push_back(*written.values);
      if (written.plain) result.push_back(*written.plain);
    }
  return result;
}

void Step::commit() {
  if (!tokens_) fail(ErrorKind::internal, "step: commit() before seal()");
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (!rows_[r].state) continue;
    RowState::Impl& row = rows_[r].state->impl();
    row.advance(rows_[r].count - rows_[r].open);
    if (row.horizon == 0) row.horizon = rows_[r].horizon;
    for (size_t slot = 0; slot < recurrent_.size(); ++slot)
      if (recurrent_[slot]) row.recurrent[slot] = {recurrent_[slot], static_cast<int>(r)};
  }
  pages_.reset();
  recurrent_.clear();
}

}  // namespace mlxcel
