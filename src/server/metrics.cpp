#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/memory.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxSeries = 4096;  // labels are bounded by design; this bounds a mistake

std::vector<double> seconds_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};
}

void head(std::string& out, const std::string& name, const std::string& help, const char* kind) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

template <class T>
void scalar(std::string& out, const std::string& name, const std::string& help, const char* kind, T value) {
  head(out, name, help, kind);
  fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
}

}  // namespace

std::string escape_label(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
  ++total_;
}

void Histogram::print(std::string& out, const std::string& name, const std::string& help) const {
  head(out, name, help, "histogram");
  const std::lock_guard lock(mutex_);
  uint64_t running = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    running += counts_[i];
    fmt::format_to(std::back_inserter(out), "{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], running);
  }
  fmt::format_to(std::back_inserter(out), "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name,
                 total_, sum_);
}

void LabelledCounter::add(const std::vector<std::string>& values, uint64_t count) {
  const std::lock_guard lock(mutex_);
  if (counts_.size() >= kMaxSeries && !counts_.contains(values)) return;
  counts_[values] += count;
}

uint64_t LabelledCounter::total() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [values, count] : counts_) sum += count;
  return sum;
}

void LabelledCounter::print(std::string& out, const std::string& name, const std::string& help) const {
  head(out, name, help, "counter");
  const std::lock_guard lock(mutex_);
  for (const auto& [values, count] : counts_) {
    out += name + "{";
    for (size_t i = 0; i < labels_.size(); ++i) {
      fmt::format_to(std::back_inserter(out), "{}{}=\"{}\"", i ? "," : "", labels_[i],
                     escape_label(values.at(i)));
    }
    fmt::format_to(std::back_inserter(out), "}} {}\n", count);
  }
}

void LabelledGauge::add(const std::string& value, int64_t change) {
  const std::lock_guard lock(mutex_);
  if (values_.size() >= kMaxSeries && !values_.contains(value)) return;
  if ((values_[value] += change) == 0) values_.erase(value);
}

void LabelledGauge::print(std::string& out, const std::string& name, const std::string& help) const {
  head(out, name, help, "gauge");
  const std::lock_guard lock(mutex_);
  for (const auto& [value, number] : values_)
    fmt::format_to(std::back_inserter(out), "{}{{{}=\"{}\"}} {}\n", name, label_, escape_label(value),
                   number);
}

Metrics::Metrics()
    : first_token(seconds_bounds()),
      token_gap(seconds_bounds()),
      request_seconds(seconds_bounds()),
      queue_wait(seconds_bounds()),
      grammar_seconds(seconds_bounds()) {}

void Metrics::saw_sequence(int64_t tokens) {
  int64_t seen = longest.load();
  while (tokens > seen && !longest.compare_exchange_weak(seen, tokens)) {
  }
}

std::string Metrics::print(const EngineStats* stats, const Labels& labels) {
  std::string out;
  if (stats) {
    EngineStats since;
    {
      const std::lock_guard lock(scrape_mutex_);
      since = std::exchange(last_, *stats);
    }
    auto rate = [](uint64_t now, uint64_t before, double seconds) {
      return seconds > 0 ? static_cast<double>(now - before) / seconds : 0.0;
    };
    scalar(out, "llamacpp:prompt_tokens_total", "Prompt tokens processed.", "counter", stats->prompt_tokens);
    scalar(out, "llamacpp:prompt_seconds_total", "Seconds spent on prompts.", "counter",
           stats->prompt_seconds);
    scalar(out, "llamacpp:tokens_predicted_total", "Tokens generated.", "counter", stats->generated_tokens);
    scalar(out, "llamacpp:tokens_predicted_seconds_total", "Seconds spent generating.", "counter",
           stats->decode_seconds);
    scalar(out, "llamacpp:n_tokens_max", "Tokens of the longest sequence seen.", "counter", longest.load());
    scalar(out, "llamacpp:n_decode_total", "Engine steps.", "counter", stats->steps);
    scalar(out, "llamacpp:prompt_tokens_seconds", "Prompt tokens a second since the last scrape.", "gauge",
           rate(stats->prompt_tokens, since.prompt_tokens, stats->prompt_seconds - since.prompt_seconds));
    scalar(
        out, "llamacpp:predicted_tokens_seconds", "Generated tokens a second since the last scrape.", "gauge",
        rate(stats->generated_tokens, since.generated_tokens, stats->decode_seconds - since.decode_seconds));
    scalar(out, "llamacpp:requests_processing", "Requests running.", "gauge", stats->running);
    scalar(out, "llamacpp:requests_deferred", "Requests waiting.", "gauge", stats->waiting);
    scalar(out, "llamacpp:n_busy_slots_per_decode", "Tokens generated a step, on average.", "gauge",
           stats->steps > 0 ? static_cast<double>(stats->generated_tokens) / static_cast<double>(stats->steps)
                            : 0.0);
    scalar(out, "mlxcel_batch_rows", "Rows of the last step.", "gauge", stats->step_rows);
    scalar(out, "mlxcel_slots_busy", "Sequences running.", "gauge", stats->running);
    scalar(out, "mlxcel_queue_depth", "Requests waiting for a slot.", "gauge", stats->waiting);
    scalar(out, "mlxcel_batch_mixed_steps_total", "Steps that carried prompts and decodes.", "counter",
           stats->mixed_steps);
    scalar(out, "llamacpp:spec_decode_num_draft_tokens_total", "Tokens drafted.", "counter", stats->drafted);
    scalar(out, "llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.",
           "counter", stats->accepted);
    scalar(out, "llamacpp:spec_decode_num_drafts_total", "Drafts.", "counter", stats->draft_rounds);
    scalar(out, "mlxcel_preemptions_total", "Rows put back in the queue.", "counter", stats->preemptions);
    scalar(out, "mlxcel_prompt_cache_hits_total", "Prompts that found a kept prefix.", "counter",
           stats->cache_hits);
    scalar(out, "mlxcel_prompt_cache_misses_total", "Prompts that found none.", "counter",
           stats->cache_misses);
    scalar(out, "mlxcel_prompt_cache_tokens_reused_total", "Prompt tokens not evaluated again.", "counter",
           stats->cache_tokens_reused);
    head(out, "mlxcel_prompt_cache_evictions_total", "Kept prefixes that had to go.", "counter");
    fmt::format_to(std::back_inserter(out), "mlxcel_prompt_cache_evictions_total{{reason=\"capacity\"}} {}\n",
                   stats->cache_evictions);
    scalar(out, "mlxcel_prompt_cache_disk_hits_total", "Prefixes read from disk.", "counter",
           stats->disk_hits);
    scalar(out, "mlxcel_prompt_cache_disk_misses_total", "Prefixes looked for on disk in vain.", "counter",
           stats->disk_misses);
    scalar(out, "mlxcel_prompt_cache_disk_corrupt_total", "Damaged files removed.", "counter",
           stats->disk_corrupt);
    scalar(out, "mlxcel_prompt_cache_disk_writes_total", "Prefixes written to disk.", "counter",
           stats->disk_writes);
    head(out, "mlxcel_prompt_cache_bytes", "Bytes of kept prefixes.", "gauge");
    fmt::format_to(std::back_inserter(out), "mlxcel_prompt_cache_bytes{{store=\"memory\"}} {}\n",
                   stats->cache_bytes);
    head(out, "mlxcel_kv_pool_blocks", "Pages of the KV pool.", "gauge");
    fmt::format_to(std::back_inserter(out), "mlxcel_kv_pool_blocks{{state=\"free\"}} {}\n",
                   stats->pages_free);
    fmt::format_to(std::back_inserter(out), "mlxcel_kv_pool_blocks{{state=\"used\"}} {}\n",
                   stats->pages_total - stats->pages_free);
  }
  const auto memory = process_memory();
  head(out, "mlxcel_memory_bytes", "Memory of the process and of the model.", "gauge");
  fmt::format_to(std::back_inserter(out), "mlxcel_memory_bytes{{kind=\"active\"}} {}\n", memory.resident);
  fmt::format_to(std::back_inserter(out), "mlxcel_memory_bytes{{kind=\"peak\"}} {}\n", memory.peak);
  requests.print(out, "mlxcel_requests_total", "Answered requests.");
  errors.print(out, "mlxcel_request_errors_total", "Error answers by type.");
  cancelled.print(out, "mlxcel_requests_cancelled_total", "Requests that ended early, by reason.");
  refused.print(out, "mlxcel_queue_refused_total", "Requests that found no place.");
  tool_calls.print(out, "mlxcel_tool_calls_total",
                   "Tool calls in answers, and texts that only looked like one.");
  key_running.print(out, "mlxcel_key_running", "Requests running, by the first digits of their key's hash.");
  grammar_seconds.print(out, "mlxcel_grammar_compile_seconds", "Making what holds an answer to its form.");
  first_token.print(out, "mlxcel_time_to_first_token_seconds", "From submission to the first token.");
  token_gap.print(out, "mlxcel_inter_token_gap_seconds", "Between two tokens of a row.");
  request_seconds.print(out, "mlxcel_request_seconds", "From submission to the end of a generation.");
  queue_wait.print(out, "mlxcel_queue_wait_seconds", "From submission to the first step.");
  scalar(out, "mlxcel_connections", "Open connections.", "gauge", connections.load());
  head(out, "mlxcel_build_info", "The program.", "gauge");
  fmt::format_to(std::back_inserter(out), "mlxcel_build_info{{version=\"{}\",mlx=\"{}\",backend=\"{}\"}} 1\n",
                 escape_label(labels.version), escape_label(labels.mlx), escape_label(labels.backend));
  if (!labels.id.empty()) {
    head(out, "mlxcel_model_info", "The model served.", "gauge");
    fmt::format_to(std::back_inserter(out), "mlxcel_model_info{{id=\"{}\",family=\"{}\",kv_mode=\"{}\"}} 1\n",
                   escape_label(labels.id), escape_label(labels.family), escape_label(labels.kv_mode));
  }
  return out;
}

}  // namespace mlxcel
