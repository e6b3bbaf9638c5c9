// Spans of requests, sent to an OpenTelemetry collector as OTLP/HTTP with JSON bodies (--otlp-endpoint). A
// thread of its own sends them in batches; when the collector is away they are dropped, never waited for.
// Owner: the application; outlives the server. Thread: any.
// Failure: invalid_request for an address that is none; what cannot be sent is counted and logged once a
// minute.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace mlxcel {

struct Span {
  std::string name;
  std::string parent;  // traceparent of the request, or empty
  TimePoint begin{}, end{};
  bool failed = false;
  std::vector<std::pair<std::string, std::variant<std::string, int64_t, double>>> attributes;
};

class Traces {
 public:
  /// `endpoint`: http://host[:port][/path], or https:// with a certificate that the system's authorities, or
  /// those of MLXCEL_EXTRA_CA_CERTS, vouch for; "/v1/traces" is added where it has no path.
  Traces(const std::string& endpoint, std::string service_name);
  ~Traces();  // sends what is left, for at most two seconds
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  void add(Span span);
  uint64_t dropped() const { return dropped_; }

 private:
  void run();
  bool post(const std::string& body) const;

  bool tls_ = false;
  std::string host_, port_, path_;
  const std::string service_name_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Span> waiting_;
  bool stopping_ = false;
  std::atomic<uint64_t> dropped_{0};
  std::thread thread_;
};

/// The ids in a traceparent header (version 00): trace, then parent; empty ones where it is malformed.
std::pair<std::string, std::string> trace_parent(std::string_view header);
/// The body of an export request.
std::string print_spans(const std::deque<Span>& spans, const std::string& service_name);

}  // namespace mlxcel
