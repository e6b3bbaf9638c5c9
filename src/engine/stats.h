// What an engine has done and holds, for metrics and tests. Owner: values. Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace mlxcel {

/// How many tokens steps had, by powers of two.
struct StepTokens {
  static constexpr size_t kBounds = 13;          // at most 1, 2, 4, … 4096 tokens
  std::array<uint64_t, kBounds + 1> steps = {};  // the last: more
  uint64_t tokens = 0;

  static constexpr uint64_t bound(size_t i) { return uint64_t{1} << i; }
  void observe(uint64_t count) {
    size_t i = 0;
    while (i < kBounds && count > bound(i)) ++i;
    ++steps[i];
    tokens += count;
  }
};

/// How drafted tokens fared, by their place in the draft (the first is 0). A place is tested when all before
/// it were accepted.
struct DraftPlaces {
  static constexpr size_t kMost = 64;  // tokens of a draft
  std::array<uint32_t, kMost> tested = {}, accepted = {};

  void test(size_t place, bool right) {
    if (place >= kMost) return;
    ++tested[place];
    accepted[place] += right ? 1 : 0;
  }
  uint64_t all_tested() const {
    uint64_t sum = 0;
    for (const uint32_t n : tested) sum += n;
    return sum;
  }
};

/// Whether drafts pay here, and how that is known (spec/features.md 4, "Adaptive policy").
struct DraftPolicyReport {
  std::string state = "unavailable";  // "settled", "profiling", "forced", "unavailable"
  std::string reason = {};   // "no_mtp_dispatch", "adaptive_disabled", "measured", "kept", "asked_for"
  std::string verdict = {};  // "enable", "disable"; empty: none yet
  bool enabled = false;      // drafts are made now
  std::string drafter = {}, hardware = {};
  int block_size = 0;  // tokens of a verify block
  double acceptance_rate = 0.0;
  int samples = 0, samples_required = 0;  // answers measured
  std::string detail = {};                // both rates, in words
};

struct EngineStats {  // a copy, consistent, cheap
  uint64_t prompt_tokens = 0, generated_tokens = 0, requests = 0, failed = 0, cancelled = 0, steps = 0;
  uint64_t prefill_steps = 0;  // that held parts of prompts
  uint64_t mixed_steps = 0;    // of these, those in which rows decoded too
  StepTokens step_tokens;
  uint64_t preemptions = 0, shifts = 0, embedded_inputs = 0;

  // The prompt cache. Evictions by reason: over its budget, pages that rows needed; what a longer entry made
  // superfluous. Rejects: rows that were not kept, by reason.
  uint64_t cache_hits = 0, cache_misses = 0, cache_tokens_reused = 0;
  uint64_t cache_evictions = 0, cache_evicted_for_pages = 0, cache_superseded = 0;
  uint64_t cache_rejected_short = 0, cache_rejected_large = 0, cache_rejected_state = 0;
  // Of these, those of models whose state is kept as it was at one token (recurrent, windowed).
  uint64_t snapshot_hits = 0, snapshot_misses = 0, snapshot_tokens_reused = 0, snapshot_evictions = 0,
           snapshot_superseded = 0;
  uint64_t snapshot_too_large = 0, cache_expired = 0;
  uint64_t disk_hits = 0, disk_misses = 0, disk_corrupt = 0, disk_writes = 0, disk_evictions = 0;
  uint64_t disk_foreign = 0;  // files of another model or setting, left alone
  int cache_entries = 0, snapshot_entries = 0;
  size_t cache_bytes = 0, snapshot_bytes = 0;  // the second: recurrent states within the first
  size_t cache_capacity = 0, snapshot_capacity = 0;
  bool disk = false;  // there is a folder for them
  int disk_entries = 0;
  size_t disk_bytes = 0, disk_capacity = 0;

  // Of --lang-bias: tokens drawn under it; with MLXCEL_LANG_BIAS_COUNTERS also those that would have been
  // others without it, and of these the pieces of characters.
  uint64_t language_biased = 0, language_suppressed = 0, language_fragments = 0;

  uint64_t drafted = 0, accepted = 0, draft_rounds = 0;
  DraftPlaces draft_places;

  double prompt_seconds = 0, decode_seconds = 0;
  double kernel_seconds = 0;  // of both, in the model's steps: the rest is the engine's own time between them
  double longest_gap_ms = 0;  // between two tokens of a row, so far
  int max_token_gap_ms = 0, step_token_budget = 0;  // in force now
  int running = 0, waiting = 0, step_rows = 0;
  int pages_free = 0, pages_total = 0;  // pages that only the prompt cache holds are free: it gives them back
  size_t page_bytes = 0;                // of one, over all layers
  size_t pages_reserved = 0;            // memory that pages have taken so far
  size_t memory_bytes = 0;              // weights, and pages that were used
  size_t memory_active = 0, memory_peak = 0, memory_cache = 0;  // of MLX's arrays
  size_t memory_limit = 0;                                      // of the process; 0: none was set
};

}  // namespace mlxcel
