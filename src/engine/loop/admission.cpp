// Who runs next and on whose pages: lanes, turns of keys, kept prefixes, choices of one prompt, room.
#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/loop/loop.h"

namespace mlxcel {
namespace {

constexpr double kPromoteSeconds = 30.0;  // a waiting request moves up one lane

}  // namespace

// The first of the best lane: rows that were put back, then the key that was served longest ago.
std::deque<std::unique_ptr<Sequence>>::iterator Loop::pick_next() {
  std::map<std::string_view, size_t> running_of;
  if (options_.max_per_key > 0)
    for (const auto& s : running_) ++running_of[s->request.key];
  const TimePoint now = Clock::now();
  auto best = waiting_.end();
  std::tuple<int, bool, uint64_t> best_rank;
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Sequence& s = **at;
    if (s.done) continue;
    if (waits_for_leader(s)) continue;
    if (!s.was_admitted && options_.max_per_key > 0 && running_of[s.request.key] >= options_.max_per_key)
      continue;
    const int lane = static_cast<int>(s.request.priority) -
                     static_cast<int>(std::min(seconds_between(s.submitted, now) / kPromoteSeconds, 2.0));
    const auto turn = turns_.find(s.request.key);
    const std::tuple rank{std::max(lane, 0), !s.was_admitted,
                          turn == turns_.end() ? uint64_t{0} : turn->second};
    if (best == waiting_.end() || rank < best_rank) best = at, best_rank = rank;
  }
  return best;
}

// A choice whose prompt another choice is evaluating right now gets it from there.
bool Loop::waits_for_leader(const Sequence& s) const {
  if (s.request.group == 0 || s.first_logits || s.generated > 0) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    return !other->done && other->generated == 0 && other->request.group == s.request.group &&
           other->prompt_tokens == s.prompt_tokens;
  });
}

// The leader's prompt is evaluated: the other choices take its state, and their first draw comes from its
// logits.
void Loop::share_prompt(Sequence& leader, std::span<const float> logits) {
  if (leader.request.group == 0 || leader.generated > 0) return;
  std::shared_ptr<const std::vector<float>> copy;
  for (const auto& s : waiting_) {
    if (s->done || s->request.group != leader.request.group || s->first_logits || s->generated > 0 ||
        s->tokens != leader.tokens || s->wants_scores())
      continue;
    if (!copy) copy = std::make_shared<const std::vector<float>>(logits.begin(), logits.end());
    s->state.emplace(leader.state->fork());
    s->first_logits = copy;
    s->cached = s->prompt_tokens;
  }
}

// Pages that admitted rows will still take.
int Loop::pages_promised() const {
  int pages = 0;
  for (const auto& s : running_)
    pages += std::max(
        0, store_->pages_for(s->tokens.size() + 1) - store_->pages_for(static_cast<size_t>(s->held())));
  return pages;
}

// Cold prefixes go until `pages` are free, or none is left.
bool Loop::make_room(int pages) {
  while (store_->pages_free() < pages)
    if (!cache_ || !cache_->evict()) return false;
  return true;
}

bool Loop::drop_parked() {
  for (const auto& s : waiting_) {
    if (!s->first_logits || s->done) continue;
    s->first_logits.reset();
    s->state.reset();
    s->cached = 0;
    return true;
  }
  return false;
}

// Rows that were computed otherwise because their prompt was longer are kept apart.
std::string Loop::cache_scope(const Sequence& s) const {
  const int regime = store_->layout().regime(s.prompt_tokens);
  return regime == 0 ? s.request.cache_scope : fmt::format("{}#{}", s.request.cache_scope, regime);
}

// Its memory: that of another choice of its prompt, a kept prefix, or nothing yet.
void Loop::find_prefix(Sequence& s) {
  if (s.request.group != 0 && s.generated == 0 && !uncuttable_ && !s.wants_scores() && s.prompt_tokens > 1)
    for (const auto& other : running_) {
      if (other->done || other->request.group != s.request.group || other->held() < s.prompt_tokens ||
          !std::equal(s.tokens.begin(), s.tokens.end(), other->tokens.begin()))
        continue;
      s.state.emplace(other->state->fork());
      s.state->truncate(s.prompt_tokens - 1);
      s.cached = s.prompt_tokens - 1;
      return;
    }
  const bool may = cache_ && s.request.cache_prompt && !s.wants_scores() && s.tokens.size() > 1;
  auto hit =
      may ? cache_->find(cache_scope(s), s.tokens, static_cast<int>(s.tokens.size()) - 1) : std::nullopt;
  if (!hit) {
    s.state.emplace(store_->make_row(s.prompt_tokens));
    return;
  }
  s.cached = std::min(hit->tokens, s.prompt_tokens);
  s.state.emplace(std::move(hit->row));
}

void Loop::admit() {
  while (running_.size() < static_cast<size_t>(options_.parallel)) {
    const auto at = pick_next();
    if (at == waiting_.end()) return;
    Sequence& next = **at;
    try {
      if (!next.state) find_prefix(next);
    } catch (const Error& error) {
      fail_sequence(next, error);
      drop_done();
      continue;
    }
    if (store_->pages_total() > 0) {
      // Room for the prompt, and one page of growth for every row that runs.
      const int growth = static_cast<int>(running_.size() + 1) * store_->pages_for(1);
      const int own =
          store_->pages_for(next.tokens.size() + 1) - store_->pages_for(static_cast<size_t>(next.held()));
      if (!make_room(pages_promised() + own + growth) && !running_.empty()) {
        if (!next.first_logits) next.state.reset(), next.cached = 0;
        if (next.request.priority != Priority::high || !preempt_below(next.request.priority)) return;
        continue;
      }
    }
    if (!next.was_admitted) next.admitted = Clock::now();
    next.was_admitted = true;
    turns_[next.request.key] = ++turn_;
    if (turns_.size() > kMaxTurns) turns_.clear();
    next.boundary = boundary_of(next);
    if (cache_ && next.request.cache_prompt && next.generated == 0) {
      ++(next.cached > 0 ? work_.cache_hits : work_.cache_misses);
      work_.cache_tokens_reused += static_cast<uint64_t>(next.cached);
    }
    running_.push_back(std::move(*at));
    waiting_.erase(at);
    Sequence& admitted = *running_.back();
    if (!admitted.first_logits) continue;
    const auto logits = std::exchange(admitted.first_logits, nullptr);
    admitted.evaluated = admitted.held();
    try {
      take(admitted, *logits);
    } catch (const std::exception& error) {
      fail_sequence(admitted, to_error(error));
    }
    drop_done();
  }
}

// Where a row whose state cannot be cut is put aside on its way through the prompt.
int Loop::boundary_of(const Sequence& s) const {
  if (!cache_ || !s.request.cache_prompt || !uncuttable_ || s.generated > 0) return 0;
  const int known = s.request.history_tokens;
  const int boundary =
      known > 0 && known < s.prompt_tokens ? known : (s.prompt_tokens - 1) / kPageTokens * kPageTokens;
  return boundary >= kPageTokens && boundary > s.held() ? boundary : 0;
}

// The youngest row of a lower lane goes back to the queue; false when there is none.
bool Loop::preempt_below(Priority priority) {
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    if ((*at)->request.priority <= priority || (*at)->done) continue;
    put_back(std::next(at).base());
    return true;
  }
  return false;
}

void Loop::put_back(std::vector<std::unique_ptr<Sequence>>::iterator at) {
  auto victim = std::move(*at);
  running_.erase(at);
  victim->state.reset();
  victim->cached = 0;
  ++work_.preemptions;
  log::info("engine", "request {}: put back for lack of pages, {} tokens to evaluate again", victim->id,
            victim->tokens.size());
  waiting_.push_front(std::move(victim));
}

}  // namespace mlxcel
