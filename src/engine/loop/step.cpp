// One step of the loop: which tokens, their pages, the evaluation, and what comes of it.
#include "state/step.h"

#include <mlx/memory.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "engine/loop/loop.h"
#include "engine/loop/pattern.h"

namespace mlxcel {
namespace {

constexpr size_t kScoreBytes = size_t{64} << 20;  // logits of one step's prompt log-probabilities

/// Whether `bytes` are no whole characters.
bool is_fragment(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (length == 0 || at + length > bytes.size()) return true;
    at += length;
  }
  return false;
}

}  // namespace

Draw Loop::drawn(Sequence& s, std::span<const float> logits, const Proposal* drafted) {
  const TokenMask mask = s.gate ? s.gate->mask() : TokenMask();
  Draw draw = s.sampler->sample(logits, s.tokens, s.place(), mask, drafted);
  const auto& biases = s.request.sampling.language_bias;
  if (!biases) return draw;
  ++work_.language_biased;
  if (!counts_language_) return draw;
  const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto held = std::lower_bound(biases->begin(), biases->end(), best,
                                     [](const auto& entry, TokenId id) { return entry.first < id; });
  if (best == draw.token || held == biases->end() || held->first != best || held->second >= 0.0f) return draw;
  ++work_.language_suppressed;
  if (tokenizer_ != nullptr && is_fragment(tokenizer_->token_bytes(best))) ++work_.language_fragments;
  return draw;
}

// Rows in the order of admission; where not all of them may decode in one step, those that waited longest
// first.
std::vector<Sequence*> Loop::row_order() const {
  std::vector<Sequence*> rows;
  rows.reserve(running_.size());
  for (const auto& s : running_) rows.push_back(s.get());
  if (options_.max_batch > 0 && rows.size() > static_cast<size_t>(options_.max_batch))
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Sequence* a, const Sequence* b) { return a->planned < b->planned; });
  return rows;
}

int Loop::max_scored_tokens() const {
  return static_cast<int>(
      std::max<size_t>(16, kScoreBytes / (sizeof(float) * static_cast<size_t>(info_.vocab_size))));
}

std::vector<Piece> Loop::plan() {
  std::vector<Piece> pieces;
  pieces.reserve(running_.size());
  for (const auto& s : running_)
    if (static_cast<int>(s->tokens.size()) >= context_ && s->generated > s->shifted_at) shift(*s);
  const std::vector<Sequence*> rows = row_order();
  int decoding = 0;
  size_t places = options_.max_batch > 0 ? static_cast<size_t>(options_.max_batch) : rows.size();
  for (Sequence* s : rows) {
    if (!s->decoding() || places == 0) continue;
    pieces.push_back({s, s->remaining(), Wants::last});
    decoding += pieces.back().count;
    s->planned = ++planned_;  // one after the other, so that no two wait equally long
    --places;
  }
  if (drafter_ && drafter_->wants_rows())
    for (const Piece& piece : pieces) drafter_->meet(piece.sequence->id, *piece.sequence->state);
  if (drafter_ && !pieces.empty())
    decoding += draft(pieces, std::min(pace_.budget(), allowance_.tokens()) - decoding);

  const int chunk = options_.prefill_chunk > 0 ? options_.prefill_chunk : std::numeric_limits<int>::max();
  int left = decoding > 0 ? std::max(pace_.budget() - decoding, 1) : std::numeric_limits<int>::max();
  left = std::min(left, std::max(allowance_.tokens() - decoding, 1));
  if (decoding > 0 && ++steps_since_chunk_ < options_.prefill_interval) return pieces;
  int scorable = max_scored_tokens();
  int prompts = 0, shared = 0;  // prompts of this step, their tokens
  for (Sequence* s : rows) {
    if (s->decoding()) continue;
    if (left <= 0) break;
    if (s->canvas) {
      if (places == 0) continue;
      pieces.push_back(canvas_piece(*s, std::min(left, chunk)));
      left -= pieces.back().count;
      s->planned = ++planned_;
      --places;
      continue;
    }
    int count = std::min({s->remaining(), left, chunk});
    if (prompts > 0) {
      if (prompts == options_.max_prefill_rows) break;
      if (options_.max_prefill_tokens > 0) count = std::min(count, options_.max_prefill_tokens - shared);
      if (count <= 0) break;
    }
    if (s->held() < s->boundary) count = std::min(count, s->boundary - s->held());
    Wants wants = Wants::none;
    if (s->wants_scores()) {
      // All logits of a chunk are held at once: their memory bounds the chunk.
      count = std::min(count, scorable);
      if (count <= 0) continue;
      scorable -= count;
      wants = Wants::all;
    } else if (count == s->remaining() && s->limit > 0) {
      wants = Wants::last;
    }
    pieces.push_back({s, count, wants});
    left -= count;
    ++prompts;
    shared += count;
    steps_since_chunk_ = 0;
  }
  return pieces;
}

// Takes the pages the step writes. When they run out cold prefixes go, then choices that wait for a slot,
// then drafts; then the youngest row gives its own back and waits.
void Loop::reserve(std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size();) {
    Sequence& sequence = *pieces[i].sequence;
    try {
      sequence.state->reserve(pieces[i].count);
      ++i;
      continue;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      if ((cache_ && cache_->evict()) || drop_parked()) continue;
      if (!pieces[i].draft.empty() && !sequence.canvas) {
        pieces[i].count -= static_cast<int>(pieces[i].draft.size());
        pieces[i].draft.clear();
        pieces[i].drawn.clear();
        pieces[i].before.reset();
        pieces[i].wants = Wants::last;
        continue;
      }
      if (running_.size() == 1) {
        if (await_disk()) continue;
        fail_sequence(sequence, error);
        pieces.clear();
        return;
      }
    }
    const Sequence* victim = running_.back().get();
    put_back(std::prev(running_.end()));
    const auto gone =
        std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.sequence == victim; });
    if (gone == pieces.end()) continue;
    if (static_cast<size_t>(gone - pieces.begin()) < i) --i;
    pieces.erase(gone);
  }
}

void Loop::run(const std::vector<Piece>& pieces) {
  int total = 0, decoding = 0;
  int decoding_rows = 0;
  for (const Piece& piece : pieces) {
    total += piece.count;
    decoding += piece.sequence->decoding() ? piece.count : 0;
    decoding_rows += piece.sequence->decoding() ? 1 : 0;
  }
  bool whole = true;
  const uint64_t made = work_.generated_tokens;
  const TimePoint before = Clock::now();
  try {
    forward(pieces);
    failures_in_a_row_ = 0;
  } catch (const std::exception& error) {
    whole = false;
    if (is_out_of_memory(error)) {
      relieve(pieces, error);
      return;
    }
    note_failure(error);
    if (pieces.size() == 1) {
      fail_sequence(*pieces[0].sequence, to_error(error));
    } else {
      // One row may have spoiled the step: each alone, so that only the culprit fails.
      for (const Piece& piece : pieces) {
        if (piece.sequence->done) continue;
        try {
          forward({piece});
          failures_in_a_row_ = 0;
        } catch (const std::exception& alone) {
          note_failure(alone);
          fail_sequence(*piece.sequence, to_error(alone));
        }
      }
    }
  }
  const double seconds = seconds_between(before, Clock::now());
  if (whole) {
    pace_.observe(total, seconds * 1e3, decoding > 0 && decoding < total);
    allowance_.calm();
    if (drafter_ && decoding == total) cost_.observe(total, seconds * 1e3);
    if (drafter_)
      judge_drafts(pieces, work_.generated_tokens - made, decoding == total ? seconds * 1e3 : 0.0);
  }
  const double share = static_cast<double>(decoding) / total;
  work_.decode_seconds += seconds * share;
  work_.prompt_seconds += seconds * (1.0 - share);
  work_.prompt_tokens += static_cast<uint64_t>(total - decoding);
  work_.step_rows = static_cast<int>(pieces.size());
  ++work_.steps;
  work_.step_tokens.observe(static_cast<uint64_t>(total));
  work_.prefill_steps += decoding_rows < static_cast<int>(pieces.size()) ? 1 : 0;
  if (decoding_rows > 0 && decoding_rows < static_cast<int>(pieces.size())) ++work_.mixed_steps;
}

// An allocation failed: the rows stand as before the step, and the next has less of prompts. Where that is
// not possible, the youngest row gives its memory back and waits; a row alone with one token is refused.
void Loop::relieve(const std::vector<Piece>& pieces, const std::exception& error) {
  // What a smaller step can do without: blocks of text diffusion stay whole.
  const auto spare = [&](const Piece& piece) {
    const Sequence& s = *piece.sequence;
    const bool whole =
        s.canvas && (!piece.draft.empty() || (!s.sketch && piece.count <= info_.diffusion.block));
    return s.decoding() || whole ? 0 : piece.count;
  };
  int total = 0, prompts = 0;
  for (const Piece& piece : pieces) {
    total += piece.count;
    prompts += spare(piece);
  }
  log::warn("engine", "a step of {} tokens found no memory: {}", total, error.what());
  mx::clear_cache();
  while (cache_ && cache_->evict()) {
  }
  if (prompts > 1) {
    allowance_.cut_tokens(total - prompts + prompts / 2);
  } else if (running_.size() > 1) {
    put_back(std::prev(running_.end()));
    allowance_.cut_rows(static_cast<int>(running_.size()));
  } else if (!await_disk()) {
    fail_sequence(*pieces[0].sequence, to_error(error));
  }
}

void Loop::forward(const std::vector<Piece>& pieces) {
  Step step;
  bool wanted = false;
  for (const Piece& piece : pieces) {
    Sequence& s = *piece.sequence;
    const size_t own = static_cast<size_t>(piece.count) - piece.draft.size();
    const auto tokens = std::span(s.tokens).subspan(static_cast<size_t>(s.held()), own);
    if (piece.draft.empty()) {
      step.add(&*s.state, tokens, piece.wants, s.adapters.get());
    } else {
      std::vector<TokenId> block(tokens.begin(), tokens.end());
      block.insert(block.end(), piece.draft.begin(), piece.draft.end());
      step.add(&*s.state, block, piece.wants, s.adapters.get());
      if (s.sketch) step.open(static_cast<int>(piece.draft.size()), s.sketch->before());
    }
    wanted |= piece.wants != Wants::none;
    if (fail_step_) fail_step_->strike(s.request.route, s.steps, s.id);
  }
  step.seal();
  const bool states_too = drafter_ && drafter_->wants_states();
  const TimePoint before = Clock::now();  // a program that waits for nothing runs while the graph is built
  // A step that wants no logits still fills the rows' state: the last hidden states pull it.
  std::optional<array> states;
  array result = array(0.0f);
  if (states_too)
    std::tie(result, states) = states_beside(step);
  else
    result = wanted ? model_->logits(step) : model_->hidden(step);
  std::vector<array> outputs = step.pending();
  outputs.push_back(result);
  if (states) outputs.push_back(*states);
  mx::eval(std::move(outputs));
  if (wanted && (result.dtype() != mx::float32 || !result.flags().row_contiguous)) {
    result = mx::contiguous(mx::astype(result, mx::float32));
    mx::eval(result);
  }
  work_.kernel_seconds += seconds_between(before, Clock::now());
  step.commit();
  if (states) show_states(pieces, *states);

  const float* logits = wanted ? result.data<float>() : nullptr;
  for (const Piece& piece : pieces) {
    Sequence& s = *piece.sequence;
    ++s.steps;
    const int rows = piece.wants == Wants::all ? piece.count : piece.wants == Wants::last ? 1 : 0;
    try {
      deliver(s, piece, logits, rows);
    } catch (const std::exception& error) {
      fail_sequence(s, to_error(error));
    }
    if (rows > 0) logits += static_cast<ptrdiff_t>(rows) * info_.vocab_size;
  }
}

void Loop::deliver(Sequence& s, const Piece& piece, const float* logits, int rows) {
  if (s.canvas) return deliver_canvas(s, piece, logits, rows);
  const auto vocab = static_cast<size_t>(info_.vocab_size);
  s.evaluated = s.held() - static_cast<int>(piece.draft.size());
  if (s.wants_scores() && piece.wants == Wants::all) deliver_scores(s, piece, logits);
  if (s.evaluated == s.boundary && s.boundary > 0) keep(s, s.state->fork());
  if (s.request.progress && s.generated == 0)
    send(s, Progress{.evaluated = s.evaluated, .timings = s.timings(Clock::now())});
  if (s.evaluated < static_cast<int>(s.tokens.size())) return;  // more of the prompt to come
  if (s.limit == 0) {
    finish(s, FinishReason::length);
    return;
  }
  const std::span<const float> last(logits + (static_cast<size_t>(rows - 1) - piece.draft.size()) * vocab,
                                    vocab);
  if (s.generated == 0) {
    share_prompt(s, last);
    keep_prompt(s);
  }
  if (piece.draft.empty()) {
    take(s, last);
    return;
  }
  // The target's own draws decide: a drafted token counts while it is the one drawn. Figures first: the
  // answer's last event has them.
  const size_t drafted = piece.draft.size();
  size_t accepted = 0;
  s.drafted += static_cast<int>(drafted);
  ++s.draft_rounds;
  work_.drafted += drafted;
  ++work_.draft_rounds;
  for (const float* row = last.data();; row += vocab) {
    const Proposal* const odds = accepted < piece.drawn.size() ? &piece.drawn[accepted] : nullptr;
    Draw draw = drawn(s, {row, vocab}, odds);
    const bool right = accepted < drafted && draw.token == piece.draft[accepted];
    if (accepted < drafted)
      for (DraftPlaces* places : {&s.draft_places, &work_.draft_places}) places->test(accepted, right);
    s.accepted += right ? 1 : 0;
    work_.accepted += right ? 1 : 0;
    const bool goes_on = put(s, std::move(draw));
    accepted += right ? 1 : 0;
    if (!goes_on || !right) break;
    ++s.evaluated;
  }
  if (options_.prompt_lookup)
    s.width.observe_looked_up(static_cast<int>(drafted), static_cast<int>(accepted),
                              options_.prompt_lookup_gated);
  else
    s.width.observe(static_cast<int>(drafted), static_cast<int>(accepted));
  if (s.done) return;
  if (accepted < piece.draft.size()) rewind(s, piece);
}

// Forgets the drafted tokens that were not drawn. Recurrent state goes back to before the block, whose tokens
// are then evaluated again with the next one.
void Loop::rewind(Sequence& s, const Piece& piece) {
  if (piece.before)
    s.state->restore(*piece.before);
  else
    s.state->truncate(s.evaluated);
}

// One token from its logits; false when it ended the answer.
bool Loop::take(Sequence& s, std::span<const float> logits) { return put(s, drawn(s, logits)); }

// A drawn token joins the answer; false when it ended it.
bool Loop::put(Sequence& s, Draw draw) {
  const auto& eos = s.request.eos;
  if (std::find(eos.begin(), eos.end(), draw.token) != eos.end()) {
    finish(s, FinishReason::stop, draw.token);
    return false;
  }
  if (s.gate) s.gate->accept(draw.token);
  const TimePoint now = Clock::now();
  if (s.generated == 0) s.first_token = now;
  if (s.last_token != TimePoint{})
    work_.longest_gap_ms = std::max(work_.longest_gap_ms, milliseconds_between(s.last_token, now));
  s.last_token = now;
  s.tokens.push_back(draw.token);
  ++s.generated;
  ++work_.generated_tokens;
  send(s, Token{.draw = std::move(draw), .timings = s.timings(now), .seed = s.sampler->seed()});
  if ((s.gate && s.gate->complete()) || goes_in_circles(s.answer(), s.request.loops))
    finish(s, FinishReason::stop);
  else if (s.generated >= s.limit)
    finish(s, FinishReason::length);
  return !s.done;
}

// The chunk's logits at token i are the distribution of token i + 1.
void Loop::deliver_scores(Sequence& s, const Piece& piece, const float* logits) {
  const auto vocab = static_cast<size_t>(info_.vocab_size);
  const int first = s.held() - piece.count;  // held() already counts the chunk
  const int top = std::max(s.request.sampling.logprobs, 0);
  Scored scored;
  for (int i = 0; i < piece.count; ++i) {
    const int next = first + i + 1;
    if (next < s.scored || next >= s.prompt_tokens) continue;
    const std::span<const float> row(logits + static_cast<size_t>(i) * vocab, vocab);
    scored.tokens.push_back(mlxcel::score(row, s.tokens[static_cast<size_t>(next)], top));
    s.scored = next + 1;
  }
  if (!scored.tokens.empty()) send(s, std::move(scored));
}

void Loop::note_failure(const std::exception& error) {
  ++failures_in_a_row_;
  log::error("engine", "evaluation failed ({} in a row): {}", failures_in_a_row_, error.what());
  if (failures_in_a_row_ < kMaxFailures) return;
  log::error("engine", "{} evaluations failed in a row: the engine stops", failures_in_a_row_);
  stop(fmt::format("the engine stopped after {} failed evaluations in a row; the last: {}",
                   failures_in_a_row_, error.what()));
}

}  // namespace mlxcel
