#include "server/socket_exchange.h"

#include <fmt/chrono.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <ctime>
#include <iterator>

#include "api/sse.h"
#include "base/log.h"

namespace mlxcel {
namespace {

std::string http_date() {
  std::tm parts{};
  const std::time_t now = std::time(nullptr);
  gmtime_r(&now, &parts);
  return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", parts);
}

/// Routes and echoed wishes never carry line breaks; should one, it ends the value.
std::string_view one_line(std::string_view value) { return value.substr(0, value.find_first_of("\r\n")); }

auto after(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

SocketExchange::SocketExchange(ConnectionHub& hub, boost::asio::any_io_executor executor, HttpRequest request,
                               Framing framing)
    : hub_(hub),
      executor_(std::move(executor)),
      wake_(executor_),
      request_(std::move(request)),
      framing_(framing) {}

void SocketExchange::post(std::function<void()> work) { boost::asio::post(executor_, std::move(work)); }

bool SocketExchange::run_blocking(std::function<void()> work) {
  if (hub_.blocking_jobs.fetch_add(1) >= hub_.limits.blocking_jobs) {
    --hub_.blocking_jobs;
    return false;
  }
  boost::asio::post(hub_.blocking, [&hub = hub_, work = std::move(work)] {
    work();
    --hub.blocking_jobs;
  });
  return true;
}

void SocketExchange::head(const HttpResponse& response, bool chunked) {
  auto out = std::back_inserter(outbox_);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nServer: mlxcel\r\nDate: {}\r\n", response.status,
                 reason_phrase(response.status), http_date());
  if (!response.content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) fmt::format_to(out, "{}: {}\r\n", name, one_line(value));
  if (chunked) {
    outbox_ += "Transfer-Encoding: chunked\r\n";
  } else if (answered_ && !streaming_ && response.status != 204) {
    fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
  }
  outbox_ += framing_.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void SocketExchange::respond(HttpResponse response) {
  if (answered_) {
    log::error("server", "{} was answered twice", request_.id);
    return;
  }
  answered_ = true;
  if (aborted_) return;
  hub_.router.finish(request_, response);
  if (hub_.draining) framing_.keep_alive = false;
  head(response, false);
  if (!framing_.head_only && response.status != 204) outbox_ += response.body;
  done_ = true;
  notify();
}

void SocketExchange::open_stream(HttpResponse response, int ping_seconds) {
  if (answered_) return;
  answered_ = true;
  streaming_ = true;
  if (aborted_) return;
  hub_.router.finish(request_, response);
  // Without chunks the end of the connection is the end of the stream.
  if (framing_.http_1_0) framing_.keep_alive = false;
  if (hub_.draining) framing_.keep_alive = false;
  head(response, !framing_.http_1_0);
  ping_seconds_ = ping_seconds;
  last_output_ = Clock::now();
  notify();
}

void SocketExchange::append(std::string_view bytes) {
  if (bytes.empty()) return;
  if (framing_.http_1_0) {
    outbox_ += bytes;
  } else {
    fmt::format_to(std::back_inserter(outbox_), "{:x}\r\n", bytes.size());
    outbox_ += bytes;
    outbox_ += "\r\n";
  }
  last_output_ = Clock::now();
}

void SocketExchange::write(std::string bytes) {
  if (!streaming_ || done_ || aborted_) return;
  append(bytes);
  notify();
  if (outbox_.size() > hub_.limits.unsent_bytes) abort("reader too slow");
}

void SocketExchange::close_stream() {
  if (!streaming_ || done_) return;
  if (!framing_.http_1_0 && !aborted_) outbox_ += "0\r\n\r\n";
  done_ = true;
  notify();
}

std::string SocketExchange::take_output() {
  std::string out;
  out.swap(outbox_);
  return out;
}

void SocketExchange::on_abort(std::function<void(const std::string&)> handler) {
  if (aborted_) {
    handler(abort_reason_);
    return;
  }
  abort_handler_ = std::move(handler);
}

void SocketExchange::abort(const std::string& reason) {
  if (aborted_ || done_) return;
  aborted_ = true;
  abort_reason_ = reason;
  framing_.keep_alive = false;
  outbox_.clear();
  stall_handler_ = nullptr;
  if (const auto handler = std::exchange(abort_handler_, nullptr)) handler(reason);
  notify();
}

void SocketExchange::cut(const std::string& reason) {
  framing_.keep_alive = false;
  if (const auto handler = std::exchange(abort_handler_, nullptr)) handler(reason);
  abort(reason);
}

void SocketExchange::watch_progress(double seconds, std::function<void()> handler) {
  progress_seconds_ = seconds;
  progressed_ = Clock::now();
  stall_handler_ = seconds > 0 ? std::move(handler) : nullptr;
  notify();
}

TimePoint SocketExchange::next_due() const {
  TimePoint due = Clock::now() + std::chrono::hours(1);
  if (streaming_ && ping_seconds_ > 0) due = std::min(due, last_output_ + after(ping_seconds_));
  if (stall_handler_) due = std::min(due, progressed_ + after(progress_seconds_));
  return due;
}

void SocketExchange::on_due() {
  const auto now = Clock::now();
  if (stall_handler_ && now >= progressed_ + after(progress_seconds_)) {
    const auto handler = std::exchange(stall_handler_, nullptr);
    handler();
  }
  if (streaming_ && !done_ && !aborted_ && ping_seconds_ > 0 && now >= last_output_ + after(ping_seconds_)) {
    append(kSsePing);
  }
}

}  // namespace mlxcel
