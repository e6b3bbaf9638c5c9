// Counters, gauges and histograms of the server, printed as Prometheus text (features.md 20).
// Owner: the service. Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace mlxcel {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);
  void print(std::string& out, const std::string& name, const std::string& help) const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> counts_;  // one more than bounds
  double sum_ = 0;
  uint64_t total_ = 0;
};

/// A counter with one or two labels whose values come from bounded sets.
class LabelledCounter {
 public:
  explicit LabelledCounter(std::vector<std::string> labels) : labels_(std::move(labels)) {}
  void add(const std::vector<std::string>& values, uint64_t count = 1);
  uint64_t total() const;
  void print(std::string& out, const std::string& name, const std::string& help) const;

 private:
  const std::vector<std::string> labels_;
  mutable std::mutex mutex_;
  std::map<std::vector<std::string>, uint64_t> counts_;
};

/// A number that goes up and down, with one label.
class LabelledGauge {
 public:
  explicit LabelledGauge(std::string label) : label_(std::move(label)) {}
  void add(const std::string& value, int64_t change);
  void print(std::string& out, const std::string& name, const std::string& help) const;

 private:
  const std::string label_;
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> values_;
};

class Metrics {
 public:
  Metrics();
  LabelledCounter requests{{"route", "status"}};
  LabelledCounter errors{{"type"}};
  LabelledCounter cancelled{{"reason"}};
  LabelledCounter refused{{"reason"}};
  LabelledCounter tool_calls{{"outcome"}};  // called, unparsed
  LabelledGauge key_running{"key"};
  Histogram first_token, token_gap, request_seconds, queue_wait, grammar_seconds;
  std::atomic<int> connections{0};
  std::atomic<int64_t> longest{0};  // tokens of the longest sequence seen
  std::atomic<int64_t> start_unix{0};

  void saw_sequence(int64_t tokens);

  struct Labels {
    std::string version, mlx, backend, id, family, kv_mode;
  };
  /// `stats` absent while the model loads.
  std::string print(const EngineStats* stats, const Labels& labels);

 private:
  std::mutex scrape_mutex_;
  EngineStats last_;  // at the scrape before, for rates
};

std::string escape_label(const std::string& value);

}  // namespace mlxcel
