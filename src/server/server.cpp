#include "server/server.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"
#include "server/connection.h"
#include "server/tls.h"

namespace mlxcel {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using LocalProtocol = asio::local::stream_protocol;

namespace {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

int thread_count(int wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 4, 8);
}

}  // namespace

struct Server::Impl {
  Impl(const Router& router, TransportOptions o)
      : options(std::move(o)),
        hub(router, options.limits),
        control(asio::make_strand(io)),
        failure_timer(control) {}

  TransportOptions options;
  asio::io_context io;
  ConnectionHub hub;
  asio::any_io_executor control;  // a strand: acceptors, signals and the timer
  std::unique_ptr<asio::ssl::context> tls;
  std::deque<tcp::acceptor> tcp_acceptors;
  std::optional<LocalProtocol::acceptor> local_acceptor;
  std::string local_path;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::optional<asio::signal_set> signals;
  asio::steady_timer failure_timer;
  std::vector<std::thread> threads;
  std::function<void()> signal_handler;
  std::function<bool()> failed;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false, draining = false, engine_failed = false, started = false;
  std::string bound;
  int bound_port = 0;

  void bind_tcp(const std::string& host);
  void bind_local(const std::string& path);
  template <class Acceptor>
  awaitable<void> accept_loop(Acceptor& acceptor);
  void wait_signal();
  void begin_stop(const std::string& why);
  void poll_failure();
  void shut();
};

void Server::Impl::bind_tcp(const std::string& host) {
  error_code error;
  const int port = tcp_acceptors.empty() ? options.port : bound_port;  // a free one is found once
  tcp::resolver resolver(io);
  const auto results = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || results.empty()) fail_param("--host", "--host {}: {}", host, error.message());
  const tcp::endpoint endpoint = *results.begin();
  auto check = [&](const char* step) {
    if (error) fail_param("--port", "cannot {} {}:{}: {}", step, host, port, error.message());
  };
  auto& acceptor = tcp_acceptors.emplace_back(control);
  acceptor.open(endpoint.protocol(), error);
  check("open");
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
#ifdef SO_REUSEPORT
  if (options.reuse_port) {
    using reuse_port = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
    acceptor.set_option(reuse_port(true), error);
    check("share");
  }
#endif
  acceptor.bind(endpoint, error);
  check("listen on");
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  bound_port = acceptor.local_endpoint().port();
  const bool v6 = host.find(':') != std::string::npos;
  const auto address =
      fmt::format("{}://{}{}{}:{}", tls ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "", bound_port);
  bound += (bound.empty() ? "" : ", ") + address;
}

void Server::Impl::bind_local(const std::string& path) {
  local_path = path;
  error_code error;
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) fail_param("--host", "--host {}: exists and is not a socket", path);
    LocalProtocol::socket probe(io);
    probe.connect(LocalProtocol::endpoint(path), error);
    if (!error) fail_param("--host", "--host {}: another server listens there", path);
    ::unlink(path.c_str());
  }
  error = {};
  local_acceptor.emplace(control);
  local_acceptor->open(LocalProtocol(), error);
  const mode_t before = ::umask(0077);
  if (!error) local_acceptor->bind(LocalProtocol::endpoint(path), error);
  ::umask(before);
  if (!error) local_acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) fail_param("--host", "--host {}: {}", path, error.message());
  bound += (bound.empty() ? "unix:" : ", unix:") + path;
}

template <class Acceptor>
awaitable<void> Server::Impl::accept_loop(Acceptor& acceptor) {
  for (;;) {
    error_code error;
    auto socket = co_await acceptor.async_accept(asio::make_strand(io),
                                                 asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor.is_open() || error == asio::error::operation_aborted) co_return;
    if (error) {
      // Out of descriptors or a client that left at once: neither ends the listener.
      log::warn("server", "accept: {}", error.message());
      asio::steady_timer pause(control, std::chrono::milliseconds(100));
      error_code ignored;
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    if constexpr (std::is_same_v<Acceptor, tcp::acceptor>) socket.set_option(tcp::no_delay(true), error);
    serve_connection(hub, ClientSocket(std::move(socket)), tls.get());
  }
}

void Server::Impl::wait_signal() {
  signals->async_wait([this](const error_code& error, int number) {
    if (error) return;
    bool second = false;
    {
      const std::lock_guard lock(mutex);
      second = stopping;
    }
    if (second) {
      // The user has asked twice: die as the signal says.
      std::signal(number, SIG_DFL);
      std::raise(number);
      return;
    }
    wait_signal();
    if (signal_handler) signal_handler();
    begin_stop(number == SIGINT ? "SIGINT" : "SIGTERM");
  });
}

void Server::Impl::begin_stop(const std::string& why) {
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
    stopping = true;
  }
  log::info("server", "stopping: {}", why);
  hub.router.service().set_state(Service::State::draining);
  asio::post(control, [this] {
    error_code ignored;
    for (auto& acceptor : tcp_acceptors) acceptor.close(ignored);
    if (local_acceptor) local_acceptor->close(ignored);
    hub.drain_all();
    {
      const std::lock_guard lock(mutex);
      draining = true;
    }
    changed.notify_all();
  });
}

void Server::Impl::poll_failure() {
  failure_timer.expires_after(std::chrono::seconds(1));
  failure_timer.async_wait([this](const error_code& error) {
    if (error) return;
    if (failed && failed()) {
      {
        const std::lock_guard lock(mutex);
        engine_failed = true;
      }
      begin_stop("the engine has stopped");
      return;
    }
    poll_failure();
  });
}

void Server::Impl::shut() {
  if (!started) return;
  started = false;
  work.reset();
  hub.blocking.join();
  io.stop();
  for (auto& thread : threads) thread.join();
  threads.clear();
  signals.reset();  // from here on a signal ends the process by itself
  if (local_acceptor) ::unlink(local_path.c_str());
}

Server::Server(const Router& router, TransportOptions options)
    : impl_(std::make_unique<Impl>(router, std::move(options))) {}

Server::~Server() {
  if (impl_->started) {
    stop();
    wait();
  }
}

void Server::start() {
  Impl& s = *impl_;
  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);
  const auto& o = s.options;
  if (o.tls_cert_file.empty() != o.tls_key_file.empty()) {
    fail_param("--ssl-cert-file", "--ssl-cert-file and --ssl-key-file: give both or neither");
  }
  if (!o.tls_cert_file.empty()) s.tls = make_tls_context(o.tls_cert_file, o.tls_key_file);
  for (size_t at = 0; at <= o.host.size();) {
    const size_t end = std::min(o.host.find(',', at), o.host.size());
    const std::string host = o.host.substr(at, end - at);
    at = end + 1;
    if (host.empty()) continue;
    if (host.ends_with(".sock"))
      s.bind_local(host);
    else
      s.bind_tcp(host);
  }
  if (s.bound.empty()) fail_param("--host", "--host {}: no address in it", o.host);
  for (auto& acceptor : s.tcp_acceptors) asio::co_spawn(s.control, s.accept_loop(acceptor), asio::detached);
  if (s.local_acceptor) asio::co_spawn(s.control, s.accept_loop(*s.local_acceptor), asio::detached);
  s.work.emplace(asio::make_work_guard(s.io));
  if (o.handle_signals) {
    s.signals.emplace(s.control, SIGINT, SIGTERM);
    s.wait_signal();
  }
  s.poll_failure();
  s.started = true;
  for (int i = 0; i < thread_count(o.threads); ++i) s.threads.emplace_back([&s] { s.io.run(); });
}

std::string Server::address() const { return impl_->bound; }
int Server::port() const { return impl_->bound_port; }

void Server::on_signal(std::function<void()> handler) { impl_->signal_handler = std::move(handler); }
void Server::watch_failure(std::function<bool()> failed) { impl_->failed = std::move(failed); }
void Server::stop() { impl_->begin_stop("asked to"); }

bool Server::wait() {
  Impl& s = *impl_;
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait(lock, [&] { return s.draining; });
  }
  if (!s.hub.wait_empty(s.options.limits.drain_seconds)) {
    log::warn("server", "{} connections still busy after {:g} s: cut", s.hub.size(),
              s.options.limits.drain_seconds);
    s.hub.cut_all("shutdown");
    s.hub.wait_empty(5);
  }
  s.shut();
  const std::lock_guard lock(s.mutex);
  return !s.engine_failed;
}

}  // namespace mlxcel
