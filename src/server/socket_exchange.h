// The exchange of a socket: what routes answer becomes bytes in an outbox, which the connection writes.
// Owner: the connection and whoever answers. Thread: the connection's strand, but for post() and
// run_blocking().
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <string>

#include "base/clock.h"
#include "server/connection.h"

namespace mlxcel {

class SocketExchange final : public Exchange, public std::enable_shared_from_this<SocketExchange> {
 public:
  /// How the answer is framed: HEAD has no body, HTTP/1.0 no chunks.
  struct Framing {
    bool keep_alive = true, http_1_0 = false, head_only = false;
  };
  SocketExchange(ConnectionHub& hub, boost::asio::any_io_executor executor, HttpRequest request,
                 Framing framing);

  HttpRequest& request() override { return request_; }
  void post(std::function<void()> work) override;
  bool run_blocking(std::function<void()> work) override;
  void respond(HttpResponse response) override;
  void open_stream(HttpResponse head, int ping_seconds) override;
  void write(std::string bytes) override;
  void close_stream() override;
  bool answered() const override { return answered_; }
  bool streaming() const override { return streaming_; }
  void on_abort(std::function<void(const std::string&)> handler) override;
  void watch_progress(double seconds, std::function<void()> handler) override;
  void progress() override { progressed_ = Clock::now(); }

  // The connection's side.
  bool has_output() const { return !outbox_.empty(); }
  std::string take_output();
  bool done() const { return done_; }
  bool keep_alive() const { return framing_.keep_alive; }
  void close_after() { framing_.keep_alive = false; }
  void abort(const std::string& reason);
  /// The server goes: whoever answers may still say so; what stays open is aborted.
  void cut(const std::string& reason);
  bool aborted() const { return aborted_; }
  /// Ends when there is output, when the answer is done, or when the next ping or check is due.
  boost::asio::steady_timer& wake() { return wake_; }
  TimePoint next_due() const;
  void on_due();  // pings and the watch over progress

 private:
  void head(const HttpResponse& response, bool chunked);
  void append(std::string_view bytes);
  void notify() { wake_.cancel(); }

  ConnectionHub& hub_;
  boost::asio::any_io_executor executor_;
  boost::asio::steady_timer wake_;
  HttpRequest request_;
  Framing framing_;
  std::string outbox_;
  bool answered_ = false, streaming_ = false, done_ = false, aborted_ = false;
  std::function<void(const std::string&)> abort_handler_;
  std::string abort_reason_;
  int ping_seconds_ = -1;
  TimePoint last_output_{}, progressed_{};
  double progress_seconds_ = 0;
  std::function<void()> stall_handler_;
};

}  // namespace mlxcel
