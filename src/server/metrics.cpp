#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/memory.h"
#include "server/engine_metrics.h"
#include "server/metric_text.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxSeries = 4096;  // labels are bounded by design; this bounds a mistake

std::vector<double> seconds_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};
}

using metric_text::head;
using metric_text::labelled;
using metric_text::scalar;

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
    print_engine_metrics(out, *stats, since, longest);
  }
  const auto memory = process_memory();
  const std::string name = "mlxcel_memory_bytes";
  head(out, name, "The model's arrays, their peak, what is kept for new ones, the limit; the process.",
       "gauge");
  if (stats) {
    labelled(out, name, "kind", "active", stats->memory_active);
    labelled(out, name, "kind", "peak", stats->memory_peak);
    labelled(out, name, "kind", "cache", stats->memory_cache);
    labelled(out, name, "kind", "limit", stats->memory_limit);
  }
  labelled(out, name, "kind", "process", memory.resident);
  labelled(out, name, "kind", "process_peak", memory.peak);
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
