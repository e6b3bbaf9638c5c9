// Coroutines over Asio are slow to compile: they stay in this file and in server.cpp.
#include "server/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>

#include "base/log.h"
#include "server/request_parser.h"
#include "server/socket_exchange.h"

namespace mlxcel {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using boost::system::error_code;
using TlsStream = asio::ssl::stream<ClientSocket>;

constexpr size_t kReadSize = 16 * 1024;
constexpr size_t kMostUnparsed = 64 * 1024;  // chunk headers and trailers that never end
constexpr size_t kMostDiscarded = 64 << 20;  // of a body nobody will read, before the socket closes
constexpr double kLingerSeconds = 2;
constexpr double kBodyRate = 16 * 1024;  // bytes a second that a body must keep up
constexpr auto kHangupPoll = std::chrono::milliseconds(50);

auto span_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

template <class Stream>
class Connection final : public ConnectionControl, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <class... Args>
  explicit Connection(ConnectionHub& hub, Args&&... args)
      : hub_(hub),
        stream_(std::forward<Args>(args)...),
        executor_(stream_.get_executor()),
        deadline_(executor_),
        hangup_timer_(executor_) {}

  awaitable<void> run() {
    const auto self = this->shared_from_this();
    if (!hub_.add(self)) {
      co_await refuse_crowd();
      close();
      co_return;
    }
    try {
      co_await serve();
    } catch (const std::exception& error) {
      log::error("server", "connection: {}", error.what());
    }
    stop_watch();
    release_body();
    if (exchange_) exchange_->abort("connection closed");
    exchange_.reset();
    disarm();
    close();
    hub_.remove(this);
  }

  asio::any_io_executor strand() const { return executor_; }

  void drain() override {
    asio::post(executor_, [self = this->shared_from_this()] {
      if (self->exchange_) self->exchange_->close_after();
      if (self->idle_) self->socket().cancel(self->ignored_);
    });
  }

  void cut(const std::string& reason) override {
    asio::post(executor_, [self = this->shared_from_this(), reason] {
      if (!self->exchange_) {
        self->socket().cancel(self->ignored_);
        return;
      }
      self->exchange_->cut(reason);
    });
  }

 private:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  ClientSocket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  // ---- time: one deadline for the operation in progress

  void arm(double seconds) { arm_at(Clock::now() + span_of(seconds)); }

  void arm_at(TimePoint when) {
    expired_ = false;
    deadline_.expires_at(when);
    deadline_.async_wait([self = this->shared_from_this(), when](const error_code& error) {
      if (error || self->deadline_.expiry() != when) return;
      self->expired_ = true;
      self->socket().cancel(self->ignored_);
    });
  }

  void disarm() { deadline_.expires_at(TimePoint::max()); }

  // ---- reading

  /// False at the end of the stream, on an error, and past the deadline (expired_).
  awaitable<bool> read_some() {
    std::array<char, kReadSize> chunk;
    error_code error;
    const size_t count = co_await stream_.async_read_some(asio::buffer(chunk),
                                                          asio::redirect_error(asio::use_awaitable, error));
    if (expired_ || error) co_return false;
    input_.append(chunk.data(), count);
    co_return true;
  }

  awaitable<bool> write_all(std::string bytes) {
    error_code error;
    arm(hub_.limits.io_seconds);
    co_await asio::async_write(stream_, asio::buffer(bytes),
                               asio::redirect_error(asio::use_awaitable, error));
    disarm();
    co_return !error;
  }

  awaitable<void> serve() {
    if constexpr (kTls) {
      error_code error;
      arm(hub_.limits.handshake_seconds);
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, error));
      disarm();
      if (error) {
        log::debug("server", "TLS handshake: {}", error.message());
        co_return;
      }
    }
    bool first = true;
    bool more = true;
    while (more) {
      more = co_await serve_one(first);
      first = false;
    }
    if constexpr (kTls) {
      error_code error;
      arm(kLingerSeconds);
      co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, error));
      disarm();
    }
  }

  /// One request; true when the next may follow.
  awaitable<bool> serve_one(bool first) {
    RequestParser parser(hub_.limits);
    HttpRequest request;
    RequestParser::Result result;
    bool begun = !input_.empty();
    arm(begun || first ? hub_.limits.header_seconds : hub_.limits.idle_seconds);
    for (;;) {
      result = parser.header(input_, request);
      input_.erase(0, result.used);
      if (result.status != RequestParser::Status::need_more) break;
      idle_ = !begun;
      if (idle_ && hub_.draining) co_return false;
      const bool got = co_await read_some();
      idle_ = false;
      if (!got) {
        if (expired_ && begun) co_await answer_error(std::move(request), 408, "the header took too long");
        co_return false;
      }
      if (!begun) arm(hub_.limits.header_seconds);
      begun = true;
    }
    disarm();
    if (result.status == RequestParser::Status::refused) {
      co_await answer_error(std::move(request), result.refusal, result.message);
      co_return false;
    }
    SocketExchange::Framing framing;
    framing.keep_alive = parser.keep_alive() && !hub_.draining;
    framing.http_1_0 = parser.http_1_0();
    framing.head_only = request.method == "HEAD";

    auto early = hub_.router.admit(request);
    if (early) {
      const bool unread = parser.has_body();
      if (unread) framing.keep_alive = false;
      exchange_ = std::make_shared<SocketExchange>(hub_, executor_, std::move(request), framing);
      exchange_->respond(std::move(*early));
      const bool more = co_await send_answer();
      if (unread) co_await linger();
      co_return more;
    }
    if (parser.has_body()) {
      const int refusal = co_await read_body(parser, request);
      if (refusal < 0) co_return false;
      if (refusal > 0) {
        co_await answer_error(std::move(request), refusal, body_complaint_);
        co_return false;
      }
    }
    exchange_ = std::make_shared<SocketExchange>(hub_, executor_, std::move(request), framing);
    hub_.router.handle(exchange_);
    std::string().swap(exchange_->request().body);  // every route has parsed it
    release_body();
    watch();
    const bool more = co_await send_answer();
    co_return more;
  }

  /// 0: the body is there; a status: refused, body_complaint_ says why; -1: the client is gone.
  awaitable<int> read_body(RequestParser& parser, HttpRequest& request) {
    if (parser.expects_continue() && input_.empty()) {
      const bool sent = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) co_return -1;
    }
    const auto start = Clock::now();
    double received = static_cast<double>(input_.size());
    for (;;) {
      const auto result = parser.body(input_, request);
      input_.erase(0, result.used);
      if (result.status == RequestParser::Status::done) break;
      if (result.status == RequestParser::Status::refused) {
        body_complaint_ = result.message;
        co_return result.refusal;
      }
      if (input_.size() > kMostUnparsed) {
        body_complaint_ = "malformed HTTP: a chunk's header does not end";
        co_return 400;
      }
      arm_at(start + span_of(hub_.limits.body_seconds + received / kBodyRate));
      const size_t before = input_.size();
      const bool got = co_await read_some();
      if (!got) {
        body_complaint_ = expired_ ? "the body took too long" : "the body ended early";
        co_return expired_ ? 408 : 400;
      }
      received += static_cast<double>(input_.size() - before);
      body_counted_ += input_.size() - before;
      if (hub_.body_bytes.fetch_add(input_.size() - before) > hub_.limits.bodies_bytes) {
        body_complaint_ = "too many large bodies at once";
        co_return 503;
      }
    }
    disarm();
    co_return 0;
  }

  void release_body() {
    hub_.body_bytes -= body_counted_;
    body_counted_ = 0;
  }

  // ---- writing

  /// Writes what the exchange gives until it is done; true when the connection may go on.
  awaitable<bool> send_answer() {
    const auto exchange = exchange_;
    bool alive = true;
    for (;;) {
      if (exchange->aborted()) {
        alive = false;
        break;
      }
      if (exchange->has_output()) {
        alive = co_await write_all(exchange->take_output());
        if (!alive) {
          exchange->abort(expired_ ? "write timeout" : "client disconnected");
          break;
        }
        continue;
      }
      if (exchange->done()) break;
      error_code error;
      exchange->wake().expires_at(exchange->next_due());
      co_await exchange->wake().async_wait(asio::redirect_error(asio::use_awaitable, error));
      exchange->on_due();
    }
    stop_watch();
    const bool keep = alive && exchange->keep_alive() && !hub_.draining;
    exchange_.reset();
    co_return keep;
  }

  /// An answer to bytes that never became a request; the connection ends after it.
  awaitable<void> answer_error(HttpRequest request, int status, std::string message) {
    disarm();
    SocketExchange::Framing framing;
    framing.keep_alive = false;
    exchange_ = std::make_shared<SocketExchange>(hub_, executor_, std::move(request), framing);
    const char* type = status == 503 ? "server_busy" : "invalid_request_error";
    exchange_->respond(
        hub_.router.error_response({status, type, std::move(message), std::nullopt}, exchange_->request()));
    co_await send_answer();
    co_await linger();
  }

  awaitable<void> refuse_crowd() {
    if constexpr (!kTls) {
      const auto response = hub_.router.error_response(
          {503, "server_busy", "too many connections", std::nullopt}, HttpRequest());
      co_await write_all(
          fmt::format("HTTP/1.1 503 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
                      "Retry-After: 1\r\nConnection: close\r\n\r\n{}",
                      reason_phrase(503), response.body.size(), response.body));
    }
  }

  /// Bytes still on their way must not turn the answer into a reset: read and forget them for a moment.
  awaitable<void> linger() {
    if constexpr (!kTls) socket().shutdown(ClientSocket::shutdown_send, ignored_);
    arm(kLingerSeconds);
    size_t discarded = 0;
    bool more = true;
    while (more && discarded < kMostDiscarded) {
      input_.clear();
      more = co_await read_some();
      discarded += input_.size();
    }
    input_.clear();
    disarm();
  }

  void close() {
    socket().shutdown(ClientSocket::shutdown_both, ignored_);
    socket().close(ignored_);
  }

  // ---- noticing that the client left while its answer is being made

  void watch() {
    if (!exchange_ || exchange_->done()) return;
    watching_ = true;
    socket().async_wait(ClientSocket::wait_read,
                        asio::bind_cancellation_slot(watch_signal_.slot(),
                                                     [self = this->shared_from_this()](error_code error) {
                                                       if (error || !self->watching_) return;
                                                       self->on_readable();
                                                     }));
  }

  void on_readable() {
    char byte = 0;
    const auto got = ::recv(socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return on_gone();
    // The next request, or TLS's own words, are waiting: an end behind them shows only as a hang-up.
    poll_hangup();
  }

  void poll_hangup() {
    pollfd state{};
    state.fd = socket().native_handle();
#ifdef POLLRDHUP
    state.events = POLLRDHUP;
    constexpr short kGone = POLLRDHUP | POLLHUP | POLLERR;
#else
    constexpr short kGone = POLLHUP | POLLERR;
#endif
    if (::poll(&state, 1, 0) > 0 && (state.revents & kGone) != 0) return on_gone();
    hangup_timer_.expires_after(kHangupPoll);
    hangup_timer_.async_wait([self = this->shared_from_this()](error_code error) {
      if (!error && self->watching_) self->poll_hangup();
    });
  }

  void on_gone() {
    watching_ = false;
    if (exchange_) exchange_->abort("client disconnected");
    socket().cancel(ignored_);
  }

  void stop_watch() {
    if (!watching_) return;
    watching_ = false;
    watch_signal_.emit(asio::cancellation_type::all);
    hangup_timer_.cancel();
  }

  ConnectionHub& hub_;
  Stream stream_;
  asio::any_io_executor executor_;
  asio::steady_timer deadline_, hangup_timer_;
  asio::cancellation_signal watch_signal_;
  std::shared_ptr<SocketExchange> exchange_;
  std::string input_;
  std::string body_complaint_;
  size_t body_counted_ = 0;
  error_code ignored_;
  bool expired_ = false, idle_ = false, watching_ = false;
};

template <class Stream, class... Args>
void spawn(ConnectionHub& hub, Args&&... args) {
  auto connection = std::make_shared<Connection<Stream>>(hub, std::forward<Args>(args)...);
  asio::co_spawn(connection->strand(), connection->run(), asio::detached);
}

}  // namespace

void serve_connection(ConnectionHub& hub, ClientSocket socket, asio::ssl::context* tls) {
  if (tls) {
    spawn<TlsStream>(hub, std::move(socket), *tls);
  } else {
    spawn<ClientSocket>(hub, std::move(socket));
  }
}

}  // namespace mlxcel
