// The server over real sockets with handlers of the test's own: framing, time limits, leaving clients,
// draining.
#include "server/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <thread>

namespace mlxcel {
namespace {

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      ADD_FAILURE() << "connect";
  }
  ~Client() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {  // leaves as a killed process with unread data does
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void send(const std::string& bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void get(const std::string& path) { send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n"); }
  /// Everything until `mark` has come; what came when it never does.
  std::string until(const std::string& mark, int milliseconds = 10000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (seen_.find(mark) == std::string::npos && std::chrono::steady_clock::now() < end) {
      pollfd state{fd_, POLLIN, 0};
      if (::poll(&state, 1, 100) <= 0) continue;
      char chunk[4096];
      const auto count = ::recv(fd_, chunk, sizeof chunk, 0);
      if (count <= 0) {
        closed_ = true;
        break;
      }
      seen_.append(chunk, static_cast<size_t>(count));
    }
    const auto found = seen_.find(mark);
    const std::string out = seen_.substr(0, found == std::string::npos ? found : found + mark.size());
    seen_.erase(0, out.size());
    return out;
  }
  bool closes(int milliseconds = 10000) {
    until("\x01 never", milliseconds);
    return closed_;
  }

 private:
  int fd_;
  std::string seen_;
  bool closed_ = false;
};

/// A server with one stream that ends when told, and one answer that never comes.
class ServerTest : public ::testing::Test {
 protected:
  void start(TransportOptions options = {}) {
    options.port = 0;
    options.threads = 2;
    options.handle_signals = false;
    router_.add("GET", "/hello",
                [](const auto& exchange) { exchange->respond({200, "text/plain", {}, "hello"}); });
    router_.add("GET", "/throw", [](const auto&) { fail(ErrorKind::internal, "thrown"); });
    router_.add("POST", "/echo", [](const auto& exchange) {
      exchange->respond({200, "text/plain", {}, exchange->request().body});
    });
    router_.add("GET", "/stream", [this](const auto& exchange) { open(exchange, true); });
    router_.add("GET", "/wait", [this](const auto& exchange) { open(exchange, false); });
    router_.add("GET", "/flood", [this](const auto& exchange) {
      open(exchange, true);
      const std::string block(1 << 20, 'x');
      for (int i = 0; i < 64; ++i) exchange->write(block);
    });
    router_.add("GET", "/stall", [](const auto& exchange) {
      exchange->watch_progress(0.1, [exchange] { exchange->respond({504, "text/plain", {}, "stalled"}); });
    });
    router_.add("GET", "/blocking", [](const auto& exchange) {
      const bool placed = exchange->run_blocking([exchange] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        exchange->post([exchange] { exchange->respond({200, "text/plain", {}, "slow"}); });
      });
      if (!placed) refuse(503, "server_busy", "All slots are busy");
    });
    service_.set_state(Service::State::ready);
    server_ = std::make_unique<Server>(router_, options);
    if (failed_) server_->watch_failure(failed_);
    server_->start();
  }

  void open(const std::shared_ptr<Exchange>& exchange, bool stream) {
    exchange->on_abort([this](const std::string& reason) {
      const std::lock_guard lock(mutex_);
      aborted_ = reason;
      changed_.notify_all();
    });
    if (stream) {
      exchange->open_stream({200, "text/event-stream", {}, ""}, -1);
      exchange->write("first");
    }
    const std::lock_guard lock(mutex_);
    open_ = exchange;
    changed_.notify_all();
  }

  std::shared_ptr<Exchange> opened() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10), [this] { return open_ != nullptr; }));
    return std::exchange(open_, nullptr);
  }
  std::string aborted() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [this] { return !aborted_.empty(); });
    return std::exchange(aborted_, "");
  }

  Service service_{ServiceOptions{}};
  Router router_{service_};
  std::unique_ptr<Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Exchange> open_;
  std::string aborted_;
  std::function<bool()> failed_;
};

TEST_F(ServerTest, KeepsAliveAndPipelines) {
  start();
  Client client(server_->port());
  client.send(
      "GET /hello HTTP/1.1\r\nHost: h\r\n\r\nPOST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: "
      "3\r\n\r\nabcGET /throw HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(client.until("hello").find("200 OK"), std::string::npos);
  EXPECT_NE(client.until("\r\n\r\nabc").find("200 OK"), std::string::npos);
  const auto thrown = client.until("}}");
  EXPECT_NE(thrown.find("500 Internal Server Error"), std::string::npos);
  EXPECT_NE(thrown.find(R"({"error":{"message":"thrown","type":"server_error","param":null,"code":500}})"),
            std::string::npos);
  EXPECT_NE(thrown.find("X-Request-Id: "), std::string::npos);
}

TEST_F(ServerTest, StreamsInChunks) {
  start();
  Client client(server_->port());
  client.get("/stream");
  const auto exchange = opened();
  EXPECT_NE(client.until("5\r\nfirst\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  exchange->post([exchange] { exchange->write("second"); });
  client.until("6\r\nsecond\r\n");
  exchange->post([exchange] { exchange->close_stream(); });
  EXPECT_EQ(client.until("0\r\n\r\n"), "0\r\n\r\n");
  client.get("/hello");
  EXPECT_NE(client.until("hello").find("200"), std::string::npos);
}

TEST_F(ServerTest, NoticesClientsThatLeave) {
  start();
  for (const char* path : {"/stream", "/wait"}) {
    for (const bool hard : {false, true}) {
      Client client(server_->port());
      client.get(path);
      const auto exchange = opened();
      if (path == std::string("/stream")) client.until("first");
      hard ? client.reset() : client.close();
      EXPECT_EQ(aborted(), "client disconnected") << path << hard;
      exchange->post([exchange] {  // late words are dropped
        exchange->write("late");
        exchange->close_stream();
      });
    }
  }
  // The end of a connection shows behind the next request too.
  Client client(server_->port());
  client.get("/wait");
  opened();
  client.get("/hello");
  client.close();
  EXPECT_EQ(aborted(), "client disconnected");
}

TEST_F(ServerTest, CutsReadersThatAreTooSlow) {
  TransportOptions options;
  options.limits.unsent_bytes = 4 << 20;
  start(options);
  Client client(server_->port());
  client.get("/flood");
  opened();
  EXPECT_EQ(aborted(), "reader too slow");
}

TEST_F(ServerTest, BoundsTheTimeOfSlowClients) {
  TransportOptions options;
  options.limits.header_seconds = 0.2;
  options.limits.idle_seconds = 0.3;
  options.limits.body_seconds = 0.2;
  start(options);
  Client header(server_->port());
  header.send("GET /hello HTTP/1.1\r\nHo");
  EXPECT_NE(header.until("}}").find("408 Request Timeout"), std::string::npos);
  Client body(server_->port());
  body.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_NE(body.until("}}").find("408 Request Timeout"), std::string::npos);
  Client idle(server_->port());
  idle.get("/hello");
  idle.until("hello");
  EXPECT_TRUE(idle.closes(5000));
  Client silent(server_->port());
  EXPECT_TRUE(silent.closes(5000));
}

TEST_F(ServerTest, WatchesProgress) {
  start();
  Client client(server_->port());
  client.get("/stall");
  EXPECT_NE(client.until("stalled").find("504 Gateway Timeout"), std::string::npos);
}

TEST_F(ServerTest, RunsBlockingWorkAside) {
  TransportOptions options;
  options.limits.blocking_jobs = 2;
  start(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->get("/blocking");
  }
  int served = 0, refused = 0;
  for (auto& client : clients) {
    const auto head = client->until("\r\n\r\n");
    served += head.find(" 200 ") != std::string::npos;
    refused += head.find(" 503 ") != std::string::npos;
  }
  EXPECT_EQ(served + refused, 6);
  EXPECT_GE(served, 2);
  EXPECT_GE(refused, 1);
}

TEST_F(ServerTest, BoundsConnections) {
  TransportOptions options;
  options.limits.connections = 3;
  start(options);
  std::vector<std::unique_ptr<Client>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<Client>(server_->port()));
    held.back()->get("/hello");
    held.back()->until("hello");
  }
  Client extra(server_->port());
  EXPECT_NE(extra.until("}}").find("503 Service Unavailable"), std::string::npos);
  held.pop_back();
  for (int i = 0; i < 50; ++i) {
    Client again(server_->port());
    again.get("/hello");
    if (again.until("hello", 1000).find(" 200 ") != std::string::npos) return;
  }
  ADD_FAILURE() << "no place after a client left";
}

TEST_F(ServerTest, DrainsRunningStreamsAndClosesIdleOnes) {
  start();
  Client idle(server_->port()), streaming(server_->port());
  idle.get("/hello");
  idle.until("hello");
  streaming.get("/stream");
  const auto exchange = opened();
  streaming.until("first");
  server_->stop();
  EXPECT_TRUE(idle.closes(5000));
  exchange->post([exchange] {
    exchange->write("last");
    exchange->close_stream();
  });
  EXPECT_NE(streaming.until("0\r\n\r\n").find("last"), std::string::npos);
  EXPECT_TRUE(streaming.closes(5000));
  EXPECT_TRUE(server_->wait());
}

TEST_F(ServerTest, CutsWhatDoesNotEnd) {
  TransportOptions options;
  options.limits.drain_seconds = 0.2;
  start(options);
  Client client(server_->port());
  client.get("/wait");
  opened();
  server_->stop();
  EXPECT_TRUE(server_->wait());
  EXPECT_EQ(aborted(), "shutdown");
  EXPECT_TRUE(client.closes(1000));
}

TEST_F(ServerTest, FailureWatchEndsTheService) {
  failed_ = [] { return true; };
  start();
  EXPECT_FALSE(server_->wait());
}

TEST_F(ServerTest, BadAddressesAreRefused) {
  TransportOptions options;
  options.host = "256.1.1.1";
  options.handle_signals = false;
  Server nowhere(router_, options);
  EXPECT_THROW(nowhere.start(), Error);
  options.host = "127.0.0.1";
  options.tls_cert_file = "/nonexistent.pem";
  options.tls_key_file = "/nonexistent.pem";
  Server no_cert(router_, options);
  EXPECT_THROW(no_cert.start(), Error);
}

}  // namespace
}  // namespace mlxcel
