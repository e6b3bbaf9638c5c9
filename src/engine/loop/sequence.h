// One running or waiting request: its tokens, what the model remembers of them, and where it stands.
// Owner: the loop. Thread: model thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/loop/canvas.h"
#include "engine/loop/disk_cache.h"
#include "engine/loop/gate.h"
#include "engine/loop/sketch.h"
#include "engine/loop/speculation.h"
#include "nn/adapter.h"
#include "state/store.h"

namespace mlxcel {

struct Sequence {
  uint64_t id = 0;
  Request request;
  Sink sink;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::optional<Sampler> sampler;
  std::shared_ptr<const AdapterSet> adapters;  // none: the bare model
  std::string adapter_key;                     // tells prefixes of other sets apart
  std::optional<Gate> gate;                    // where the answer is constrained
  std::optional<Canvas> canvas;                // of a text-diffusion model: the block that is being filled in
  std::optional<Sketch> sketch;                // beside it where the model draws whole drafts
  std::vector<TokenId> tokens;                 // prompt, then what was generated
  std::optional<RowState> state;               // holds the first state->length() of them; none while waiting
  int prompt_tokens = 0;
  int generated = 0;
  int limit = 0;           // most tokens to generate
  int scored = 1;          // next prompt token whose log-probability is due
  int evaluated = 0;       // of `tokens`, those that `state` holds rightly (drafts may follow)
  int cached = 0;          // prompt tokens that came from a kept prefix or another choice
  int shifts = 0;          // how often the window was full and its oldest tokens were forgotten
  int shifted_at = 0;      // what was generated then: a row that waits for its turn forgets nothing more
  bool keeps_bos = false;  // a BOS that the tokenizer added stays then
  int slot = -1;           // while it runs
  int boundary = 0;        // where the state is put aside on the way through the prompt; 0: nowhere
  std::shared_ptr<const std::vector<float>> first_logits;  // a choice that waits with its prompt evaluated
  std::optional<DiskCache::Entry> stored;                  // a longer prefix than memory may have
  DraftWidth width;
  DraftPlaces draft_places;
  int drafted = 0, accepted = 0, draft_rounds = 0;
  uint64_t steps = 0;    // evaluations that succeeded
  uint64_t planned = 0;  // the step it was last in, where not all rows fit into one
  TimePoint submitted, admitted, first_token, last_token;
  bool was_admitted = false;
  bool done = false;  // its last event is out; the loop drops it

  /// The place of the next token in the whole text, forgotten tokens among those before it.
  int64_t place() const { return int64_t{prompt_tokens} + generated; }
  /// What was generated and is still known.
  std::span<const TokenId> answer() const {
    return std::span(tokens).last(std::min(tokens.size(), static_cast<size_t>(generated)));
  }
  int held() const { return state ? state->length() : 0; }
  int remaining() const { return static_cast<int>(tokens.size()) - held(); }
  /// Between draws. Tokens of a draft that recurrent state had to forget are evaluated again with the next
  /// one.
  bool decoding() const { return !canvas && generated > 0 && remaining() <= DraftWidth::kMost + 1; }
  bool wants_scores() const { return request.prompt_logprobs && scored < prompt_tokens; }

  Timings timings(TimePoint now) const {
    Timings t;
    t.prompt_tokens = prompt_tokens;
    t.generated_tokens = generated;
    t.cached_tokens = cached;
    t.drafted = drafted;
    t.accepted = accepted;
    t.draft_rounds = draft_rounds;
    t.draft_places = draft_places;
    t.slot = slot;
    t.queue_ms = milliseconds_between(submitted, was_admitted ? admitted : now);
    if (was_admitted) t.prompt_ms = milliseconds_between(admitted, generated > 0 ? first_token : now);
    if (generated > 0) t.decode_ms = milliseconds_between(first_token, now);
    return t;
  }
};

/// A sequence's part of a step.
struct Piece {
  Sequence* sequence = nullptr;
  int count = 0;
  Wants wants = Wants::none;
  std::vector<TokenId> draft = {};               // the last tokens of `count`: guesses to be verified
  std::vector<Proposal> drawn = {};              // their odds, where they were drawn
  std::optional<RecurrentSnapshot> before = {};  // where recurrent state goes back to
};

}  // namespace mlxcel
