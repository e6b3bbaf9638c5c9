#include "server/engine_metrics.h"

#include "server/metric_text.h"

namespace mlxcel {
namespace {

using namespace metric_text;

double rate(uint64_t now, uint64_t before, double seconds) {
  return seconds > 0 ? static_cast<double>(now - before) / seconds : 0.0;
}

void print_work(std::string& out, const EngineStats& stats, const EngineStats& since, int64_t longest) {
  scalar(out, "llamacpp:prompt_tokens_total", "Prompt tokens processed.", "counter", stats.prompt_tokens);
  scalar(out, "llamacpp:prompt_tokens_cached_total", "Prompt tokens that a kept prefix spared.", "counter",
         stats.cache_tokens_reused);
  scalar(out, "llamacpp:prompt_seconds_total", "Seconds spent on prompts.", "counter", stats.prompt_seconds);
  scalar(out, "llamacpp:tokens_predicted_total", "Tokens generated.", "counter", stats.generated_tokens);
  scalar(out, "llamacpp:tokens_predicted_seconds_total", "Seconds spent generating.", "counter",
         stats.decode_seconds);
  scalar(out, "llamacpp:n_tokens_max", "Tokens of the longest sequence seen.", "counter", longest);
  scalar(out, "llamacpp:n_decode_total", "Engine steps.", "counter", stats.steps);
  scalar(out, "llamacpp:prompt_tokens_seconds", "Prompt tokens a second since the last scrape.", "gauge",
         rate(stats.prompt_tokens, since.prompt_tokens, stats.prompt_seconds - since.prompt_seconds));
  scalar(out, "llamacpp:predicted_tokens_seconds", "Generated tokens a second since the last scrape.",
         "gauge",
         rate(stats.generated_tokens, since.generated_tokens, stats.decode_seconds - since.decode_seconds));
  scalar(out, "llamacpp:requests_processing", "Requests running.", "gauge", stats.running);
  scalar(out, "llamacpp:requests_deferred", "Requests waiting.", "gauge", stats.waiting);
  scalar(
      out, "llamacpp:n_busy_slots_per_decode", "Tokens generated a step, on average.", "gauge",
      stats.steps > 0 ? static_cast<double>(stats.generated_tokens) / static_cast<double>(stats.steps) : 0.0);
  scalar(out, "mlxcel_batch_rows", "Rows of the last step.", "gauge", stats.step_rows);
  scalar(out, "mlxcel_slots_busy", "Sequences running.", "gauge", stats.running);
  scalar(out, "mlxcel_queue_depth", "Requests waiting for a slot.", "gauge", stats.waiting);
  scalar(out, "mlxcel_batch_prefill_grants_total", "Steps that carried parts of prompts.", "counter",
         stats.prefill_steps);
  scalar(out, "mlxcel_batch_mixed_steps_total", "Steps that carried prompts and decodes.", "counter",
         stats.mixed_steps);
  scalar(out, "mlxcel_preemptions_total", "Rows put back in the queue.", "counter", stats.preemptions);
  scalar(out, "mlxcel_context_shifts_total", "Full windows whose oldest tokens were forgotten.", "counter",
         stats.shifts);
  scalar(out, "mlxcel_step_token_budget", "Most tokens of a step while rows decode.", "gauge",
         stats.step_token_budget);
  const std::string name = "mlxcel_step_tokens";
  head(out, name, "Tokens of a step.", "histogram");
  uint64_t running = 0;
  for (size_t i = 0; i < StepTokens::kBounds; ++i) {
    running += stats.step_tokens.steps[i];
    labelled(out, name + "_bucket", "le", std::to_string(StepTokens::bound(i)), running);
  }
  running += stats.step_tokens.steps[StepTokens::kBounds];
  labelled(out, name + "_bucket", "le", "+Inf", running);
  fmt::format_to(std::back_inserter(out), "{0}_sum {1}\n{0}_count {2}\n", name, stats.step_tokens.tokens,
                 running);
}

void print_drafts(std::string& out, const EngineStats& stats) {
  scalar(out, "llamacpp:spec_decode_num_draft_tokens_total", "Tokens drafted.", "counter", stats.drafted);
  scalar(out, "llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.", "counter",
         stats.accepted);
  scalar(out, "llamacpp:spec_decode_num_drafts_total", "Drafts.", "counter", stats.draft_rounds);
  const std::string name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
  head(out, name, "Drafted tokens that were right, by their place in the draft.", "counter");
  for (size_t i = 0; i < DraftPlaces::kMost; ++i) {
    if (i > 0 && stats.draft_places.tested[i] == 0) break;
    labelled(out, name, "position", std::to_string(i), stats.draft_places.accepted[i]);
  }
}

void print_cache(std::string& out, const EngineStats& stats) {
  scalar(out, "mlxcel_prompt_cache_hits_total", "Prompts that found a kept prefix.", "counter",
         stats.cache_hits);
  scalar(out, "mlxcel_prompt_cache_misses_total", "Prompts that found none.", "counter", stats.cache_misses);
  scalar(out, "mlxcel_prompt_cache_tokens_reused_total", "Prompt tokens not evaluated again.", "counter",
         stats.cache_tokens_reused);
  std::string name = "mlxcel_prompt_cache_evictions_total";
  head(out, name, "Kept prefixes that had to go.", "counter");
  labelled(out, name, "reason", "capacity", stats.cache_evictions - stats.cache_evicted_for_pages);
  labelled(out, name, "reason", "pages", stats.cache_evicted_for_pages);
  labelled(out, name, "reason", "ttl", stats.cache_expired);
  labelled(out, name, "reason", "superseded", stats.cache_superseded);
  name = "mlxcel_prompt_cache_reject_total";
  head(out, name, "Rows that were not kept.", "counter");
  labelled(out, name, "reason", "too_short", stats.cache_rejected_short);
  labelled(out, name, "reason", "oversize", stats.cache_rejected_large);
  labelled(out, name, "reason", "model_owned_state", stats.cache_rejected_state);
  scalar(out, "mlxcel_prompt_cache_snapshot_hits_total",
         "Prompts that found a snapshot of their model's state.", "counter", stats.snapshot_hits);
  scalar(out, "mlxcel_prompt_cache_snapshot_misses_total", "Prompts that found none.", "counter",
         stats.snapshot_misses);
  scalar(out, "mlxcel_prompt_cache_snapshot_tokens_reused_total",
         "Prompt tokens not evaluated again for a snapshot.", "counter", stats.snapshot_tokens_reused);
  name = "mlxcel_prompt_cache_snapshot_evictions_total";
  head(out, name, "Snapshots that had to go.", "counter");
  labelled(out, name, "reason", "capacity", stats.snapshot_evictions);
  labelled(out, name, "reason", "superseded", stats.snapshot_superseded);
  scalar(out, "mlxcel_prompt_cache_disk_hits_total", "Prefixes read from disk.", "counter", stats.disk_hits);
  scalar(out, "mlxcel_prompt_cache_disk_misses_total", "Prefixes looked for on disk in vain.", "counter",
         stats.disk_misses);
  scalar(out, "mlxcel_prompt_cache_disk_corrupt_total", "Damaged files removed.", "counter",
         stats.disk_corrupt);
  scalar(out, "mlxcel_prompt_cache_disk_writes_total", "Prefixes written to disk.", "counter",
         stats.disk_writes);
  scalar(out, "mlxcel_prompt_cache_disk_evictions_total", "Files that made room for others.", "counter",
         stats.disk_evictions);
  name = "mlxcel_prompt_cache_bytes";
  head(out, name, "Bytes of kept prefixes; snapshots are within memory.", "gauge");
  labelled(out, name, "store", "memory", stats.cache_bytes);
  labelled(out, name, "store", "snapshot", stats.snapshot_bytes);
  labelled(out, name, "store", "disk", stats.disk_bytes);
  name = "mlxcel_kv_pool_blocks";
  head(out, name, "Pages of the KV pool.", "gauge");
  labelled(out, name, "state", "free", stats.pages_free);
  labelled(out, name, "state", "used", stats.pages_total - stats.pages_free);
}

void print_language_bias(std::string& out, const EngineStats& stats) {
  scalar(out, "mlxcel_lang_bias_applied_total", "Tokens drawn under a language bias.", "counter",
         stats.language_biased);
  scalar(out, "mlxcel_lang_bias_tokens_suppressed_total",
         "Of these, those that the bias made others (MLXCEL_LANG_BIAS_COUNTERS).", "counter",
         stats.language_suppressed);
  scalar(out, "mlxcel_lang_bias_byte_fragment_suppressions_total",
         "Of these, those that were pieces of characters (MLXCEL_LANG_BIAS_COUNTERS).", "counter",
         stats.language_fragments);
}

}  // namespace

void print_engine_metrics(std::string& out, const EngineStats& stats, const EngineStats& since,
                          int64_t longest) {
  print_work(out, stats, since, longest);
  print_drafts(out, stats);
  print_cache(out, stats);
  print_language_bias(out, stats);
}

}  // namespace mlxcel
