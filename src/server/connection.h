// One client's socket: reads requests, runs routes, writes answers, notices when nobody listens any more.
// Owner: itself, until the socket closes; the hub knows it weakly. Thread: its strand.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/options.h"
#include "server/router.h"

namespace mlxcel {

/// A connection as the server sees it when it shuts down. Any thread.
class ConnectionControl {
 public:
  virtual ~ConnectionControl() = default;
  virtual void drain() = 0;                         // closes when idle, or after the answer in progress
  virtual void cut(const std::string& reason) = 0;  // ends what runs, closes
};

/// What connections share. Owner: the server; outlives them. Thread: any.
class ConnectionHub {
 public:
  ConnectionHub(const Router& r, const ServerLimits& l) : router(r), limits(l), blocking(2) {}

  const Router& router;
  const ServerLimits limits;
  boost::asio::thread_pool blocking;  // for work that waits for the engine
  std::atomic<size_t> blocking_jobs{0};
  std::atomic<size_t> body_bytes{0};  // being read or parsed, all connections
  std::atomic<bool> draining{false};

  bool add(const std::shared_ptr<ConnectionControl>& connection);  // false: too many
  void remove(ConnectionControl* connection);
  void drain_all();
  void cut_all(const std::string& reason);
  /// Until every connection is gone; false when `seconds` pass first.
  bool wait_empty(double seconds);
  size_t size() const;

 private:
  std::vector<std::shared_ptr<ConnectionControl>> all() const;
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::map<ConnectionControl*, std::weak_ptr<ConnectionControl>> connections_;
};

using ClientSocket = boost::asio::generic::stream_protocol::socket;

/// Takes the socket over; its executor must be a strand. `tls` null: plain.
void serve_connection(ConnectionHub& hub, ClientSocket socket, boost::asio::ssl::context* tls);

}  // namespace mlxcel
