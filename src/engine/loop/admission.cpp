// Who runs next and on whose pages: lanes, turns of keys, kept prefixes, choices of one prompt, room.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/log.h"
#include "base/memory.h"
#include "engine/loop/loop.h"

namespace mlxcel {
namespace {

constexpr double kPromoteSeconds = 30.0;  // a waiting request moves up one lane
constexpr double kMemorySeconds = 0.05;   // how long what the machine said of its memory holds
// A step's activations, by the preflight's formula (features.md 11): so many copies of hidden and inner
// width.
constexpr size_t kActivationCopies = 3;
constexpr size_t kInnerWidths = 4;

}  // namespace

// The first of the best lane: rows that were put back, then the key that was served longest ago.
std::deque<std::unique_ptr<Sequence>>::iterator Loop::pick_next() {
  std::map<std::string_view, size_t> running_of;
  const size_t most_per_key = max_per_key_;
  if (most_per_key > 0)
    for (const auto& s : running_) ++running_of[s->request.key];
  const TimePoint now = Clock::now();
  auto best = waiting_.end();
  std::tuple<int, bool, uint64_t> best_rank;
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Sequence& s = **at;
    if (s.done) continue;
    if (waits_for_leader(s)) continue;
    if (s.request.slot >= 0 && slots_.at(s.request.slot).busy) continue;
    if (!s.was_admitted && most_per_key > 0 && running_of[s.request.key] >= most_per_key) continue;
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
           other->adapter_key == s.adapter_key && other->prompt_tokens == s.prompt_tokens;
  });
}

// The leader's prompt is evaluated: the other choices take its state, and their first draw comes from its
// logits.
void Loop::share_prompt(Sequence& leader, std::span<const float> logits) {
  if (leader.request.group == 0 || leader.generated > 0) return;
  std::shared_ptr<const std::vector<float>> copy;
  for (const auto& s : waiting_) {
    if (s->done || s->request.group != leader.request.group || s->first_logits || s->generated > 0 ||
        s->limit == 0 || s->tokens != leader.tokens || s->wants_scores() ||
        s->adapter_key != leader.adapter_key)
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

// Why `pages` more and a step of this row's do not fit what memory is left; nothing where they do.
std::optional<Error> Loop::lack_of_memory(const Sequence& s, int pages) {
  const TimePoint now = Clock::now();
  if (memory_seen_ == TimePoint{} || seconds_between(memory_seen_, now) > kMemorySeconds) {
    memory_left_ = available_memory();
    if (memory_left_ == 0) memory_left_ = SIZE_MAX;  // unknown here, or a limit that admission cannot mend
    if (options_.memory_limit > 0) {
      const size_t held = process_memory().resident;
      memory_left_ = std::min(memory_left_, options_.memory_limit > held ? options_.memory_limit - held : 0);
    }
    memory_seen_ = now;
  }
  const int chunk = options_.prefill_chunk > 0 ? options_.prefill_chunk : s.remaining();
  const auto width = static_cast<size_t>(info_.hidden) * (1 + kInnerWidths);
  const size_t step = kActivationCopies * static_cast<size_t>(std::min(s.remaining(), chunk)) * width * 2 +
                      static_cast<size_t>(info_.vocab_size) * sizeof(float);
  const size_t state = fresh_bytes(*store_, pages_promised() + pages) + store_->layout().recurrent_bytes();
  if (state + step <= memory_left_) {
    memory_left_ -= store_->layout().recurrent_bytes();  // taken before the machine is asked again
    return std::nullopt;
  }
  return Error(
      ErrorKind::out_of_memory,
      fmt::format("{} tokens need {} of keys, values and states and {} for a step; {} of memory are left",
                  s.tokens.size(), format_bytes(state), format_bytes(step), format_bytes(memory_left_)));
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
  const std::string scope = s.request.cache_scope + s.adapter_key;
  return regime == 0 ? scope : fmt::format("{}#{}", scope, regime);
}

// Its memory: that of another choice of its prompt, a kept prefix, or nothing yet.
void Loop::find_prefix(Sequence& s) {
  if (s.request.group != 0 && s.generated == 0 && !uncuttable_ && !s.wants_scores() && s.prompt_tokens > 1)
    for (const auto& other : running_) {
      if (other->done || other->request.group != s.request.group || other->held() < s.prompt_tokens ||
          other->adapter_key != s.adapter_key ||
          !std::equal(s.tokens.begin(), s.tokens.end(), other->tokens.begin()))
        continue;
      s.state.emplace(other->state->fork());
      s.state->truncate(s.prompt_tokens - 1);
      s.cached = s.prompt_tokens - 1;
      return;
    }
  take_in(s);
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

// What the disk had for this prompt becomes an entry like any other.
void Loop::take_in(Sequence& s) {
  if (!s.stored) return;
  const auto entry = *std::exchange(s.stored, std::nullopt);
  try {
    if (!make_room(pages_promised() + 2 * store_->pages_for(entry.tokens.size())))
      return disk_->unseen(cache_scope(s), entry.tokens);
    if (auto row = row_from_image(*store_, entry.image))
      cache_->keep(cache_scope(s), entry.tokens, std::move(*row));
    else
      log::warn("engine", "prompt cache: an entry of {} tokens is of another layout", entry.tokens.size());
  } catch (const Error& error) {
    disk_->unseen(cache_scope(s), entry.tokens);
    log::debug("engine", "prompt cache: an entry of {} tokens is left on disk: {}", entry.tokens.size(),
               error.what());
  }
}

void Loop::admit() {
  while (true) {
    const auto at = pick_next();
    if (at == waiting_.end()) return;
    Sequence& next = **at;
    // Rows that are put back change the queue, but not whose turn it is.
    while (running_.size() >= static_cast<size_t>(std::min(options_.parallel, allowance_.rows())))
      if (!preempt_below(next.request.priority)) return;
    try {
      if (!next.state) find_prefix(next);
    } catch (const std::exception& error) {
      fail_sequence(next, to_error(error));
      drop_done();
      continue;
    }
    const auto wait = [&] {
      if (!next.first_logits) next.state.reset(), next.cached = 0;
    };
    const int own =
        store_->pages_for(next.tokens.size() + 1) - store_->pages_for(static_cast<size_t>(next.held()));
    if (store_->pages_total() > 0) {
      // Room for the prompt, one page of growth for every row that runs, and what is to stay free then.
      const auto room = [&] {
        const int growth = static_cast<int>(running_.size() + 1) * store_->pages_for(1);
        const int spare =
            running_.empty() ? 0 : static_cast<int>(options_.kv_watermark * store_->pages_total());
        return make_room(pages_promised() + own + growth + spare) || running_.empty();
      };
      while (!room())
        if (!preempt_below(next.request.priority)) return wait();
    }
    if (const auto lack = lack_of_memory(next, own)) {
      if (!running_.empty()) return wait();  // until one of them ends
      fail_sequence(next, *lack);
      drop_done();
      continue;
    }
    next.slot = slots_.take(next.request.slot);
    if (!next.was_admitted) {
      next.admitted = Clock::now();
      inbox_.left_queue(next.request.key);
      next.was_admitted = true;
      if (next.request.progress)
        send(next, Progress{.evaluated = next.cached, .timings = next.timings(next.admitted)});
    }
    turns_[next.request.key] = ++turn_;
    if (turns_.size() > kMaxTurns) turns_.clear();
    next.boundary = boundary_of(next);
    if (cache_ && next.request.cache_prompt && next.generated == 0) {
      const auto reused = static_cast<uint64_t>(next.cached);
      ++(reused > 0 ? work_.cache_hits : work_.cache_misses);
      work_.cache_tokens_reused += reused;
      if (uncuttable_) {
        ++(reused > 0 ? work_.snapshot_hits : work_.snapshot_misses);
        work_.snapshot_tokens_reused += reused;
      }
    }
    const auto place =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& s) { return s.get() == &next; });
    running_.push_back(std::move(*place));
    waiting_.erase(place);
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
  static const bool off = [] {
    const char* text = std::getenv("MLXCEL_DISABLE_BOUNDARY_SNAPSHOT");
    return text != nullptr && std::string_view(text) == "1";
  }();
  if (off || !cache_ || !s.request.cache_prompt || !uncuttable_ || s.generated > 0) return 0;
  const int known = s.request.history_tokens;
  const int boundary =
      known > 0 && known < s.prompt_tokens ? known : (s.prompt_tokens - 1) / kPageTokens * kPageTokens;
  return boundary >= kPageTokens && boundary > s.held() ? boundary : 0;
}

// The youngest row of a lower lane goes back to the queue; false when there is none.
bool Loop::preempt_below(Priority priority) {
  if (!options_.preemption) return false;
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    if ((*at)->request.priority <= priority || (*at)->done) continue;
    put_back(std::next(at).base());
    return true;
  }
  return false;
}

// A row that is put back becomes a kept prefix: it is found again unless its pages are needed meanwhile.
void Loop::park(Sequence& s) {
  if (!s.state || !cache_ || !s.request.cache_prompt || s.evaluated < kPageTokens) return;
  try {
    RowState row = *std::exchange(s.state, std::nullopt);
    if (row.length() != s.evaluated) {
      if (!store_->layout().recurrent().empty()) {  // a draft is in it
        ++work_.cache_rejected_state;
        return;
      }
      row.truncate(s.evaluated);
    }
    cache_->keep(cache_scope(s), s.tokens, std::move(row));
  } catch (const std::exception& error) {
    log::debug("engine", "request {}: not parked: {}", s.id, error.what());
  }
}

void Loop::put_back(std::vector<std::unique_ptr<Sequence>>::iterator at) {
  auto victim = std::move(*at);
  running_.erase(at);
  park(*victim);
  victim->state.reset();
  release(*victim);
  victim->last_token = {};  // what passes until its next one is no gap between tokens
  victim->evaluated = 0;
  victim->cached = 0;
  ++work_.preemptions;
  log::info("engine", "request {}: put back, {} tokens to go on from", victim->id, victim->tokens.size());
  waiting_.push_front(std::move(victim));
}

}  // namespace mlxcel
