// What a route sees of HTTP: plain structs, and the exchange through which it answers. No sockets here.
// Owner: the connection owns the exchange; a route keeps it alive by its shared_ptr.
// Thread: an exchange's members run on its connection's executor, but for post(), which may be called
// anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace mlxcel {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// Whose error shape and rules a route follows.
enum class Dialect { openai, anthropic, ollama };

struct HttpRequest {
  std::string method;
  std::string target;   // as sent
  std::string path;     // target without query, percent-decoded
  std::string query;    // after '?', as sent
  HttpHeaders headers;  // names in lower case, in order
  std::string body;
  std::string id;         // X-Request-Id of the answer
  std::string key_label;  // first eight hex digits of the key's SHA-256; empty without keys
  std::string route;      // the pattern that matched, for metrics and logs
  Dialect dialect = Dialect::openai;
  bool logged = false;          // somebody else writes this request's log line
  bool for_metrics = false;     // it came to the listener that serves nothing else
  TimePoint received{};         // the head was there
  std::shared_ptr<void> lease;  // keeps what answers it (a loaded model) until the exchange is gone

  /// The first value of a header (lower-case name), or empty.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

const char* reason_phrase(int status);

/// One request and its answer: respond() once, or open_stream(), any number of write()s, close_stream().
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual HttpRequest& request() = 0;

  /// Runs `work` on the connection's executor, in order. Any thread.
  virtual void post(std::function<void()> work) = 0;
  /// Runs `work` where it may block; it must end in post(). False when too much waits already.
  virtual bool run_blocking(std::function<void()> work) = 0;

  virtual void respond(HttpResponse response) = 0;
  /// The head of a stream; its body is ignored. `ping_seconds`: comment pings while silent, -1 off.
  virtual void open_stream(HttpResponse head, int ping_seconds) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void close_stream() = 0;
  virtual bool answered() const = 0;   // respond() or open_stream() was called
  virtual bool streaming() const = 0;  // a stream is open

  /// Called at most once, when nobody waits for the answer any more ("client disconnected", "reader too
  /// slow", …): whatever is written then is dropped. With "shutdown" the last words are still sent.
  virtual void on_abort(std::function<void(const std::string& reason)> handler) = 0;
  /// From now on, no call of progress() for `seconds` calls `handler` once. 0: off.
  virtual void watch_progress(double seconds, std::function<void()> handler) = 0;
  virtual void progress() = 0;
};

}  // namespace mlxcel
