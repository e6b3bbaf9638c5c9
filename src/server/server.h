// The listener: binds, accepts, drains on SIGTERM or SIGINT.
// Owner: the application. It must outlive the engine, whose events are posted to its threads.
// Thread: start, wait and the destructor on one; stop() anywhere.
// Failure: start() throws invalid_request for an address that cannot be had.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/options.h"
#include "server/router.h"

namespace mlxcel {

class Server {
 public:
  Server(const Router& router, TransportOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Binds and answers from now on, whether or not the model is there.
  void start();
  /// "http://127.0.0.1:8080", "https://…", or "unix:/path.sock".
  std::string address() const;
  int port() const;

  /// Before start(). Called on an I/O thread when a signal ends the service, before draining.
  void on_signal(std::function<void()> handler);
  /// Before start(). Polled every second; true stops the server and makes wait() false.
  void watch_failure(std::function<bool()> failed);
  void stop();
  /// Blocks until stopped and drained. False: the failure watch stopped it.
  bool wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
