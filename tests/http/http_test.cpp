// Server, engine and scripted model in one process: many clients, clients that leave, stopping under load.
// The wire cases proper are in cases/ and check_*.py; this is what the sanitizers watch.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "fixtures/scripted_model.h"
#include "server/server.h"

namespace mlxcel {
namespace {

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

/// Sends and reads: everything, or until `bytes` have come.
std::string talk(int port, const std::string& request, size_t bytes = SIZE_MAX) {
  const int fd = connect_to(port);
  (void)!::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string out;
  char chunk[512];
  while (out.size() < bytes) {
    const auto count = ::recv(fd, chunk, sizeof chunk, 0);
    if (count <= 0) break;
    out.append(chunk, static_cast<size_t>(count));
  }
  ::close(fd);
  return out;
}

std::string chat(const std::string& text, bool stream) {
  return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text +
                                          R"("}],"temperature":0,"max_tokens":64,"logprobs":true,"stream":)" +
                                          (stream ? "true}" : "false}"));
}

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mlxcel-http-test-" + std::to_string(::getpid()));
    testing::ScriptedModel::standard().write(folder_);
    ServiceOptions service;
    service.model_id = "scripted";
    service.metrics = true;
    service.max_rows = 260;
    service_ = std::make_unique<Service>(service);
    router_ = std::make_unique<Router>(*service_);
    add_all_routes(*router_);
    TransportOptions transport;
    transport.port = 0;
    transport.threads = 3;
    transport.handle_signals = false;
    transport.limits.drain_seconds = 20;
    server_ = std::make_unique<Server>(*router_, transport);
    server_->start();
    EngineOptions engine;
    engine.model = folder_;
    engine.parallel = 4;
    service_->ready(Engine::load(engine));
  }
  void TearDown() override {
    server_->stop();
    EXPECT_TRUE(server_->wait());
    service_->release();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<Server> server_;
};

TEST_F(HttpTest, ManyClientsAtOnce) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) {
        const bool stream = (i + round) % 2 == 0;
        const auto answer = talk(server_->port(), chat(i % 3 ? "[[count]]" : "[[long]]", stream));
        EXPECT_NE(answer.find(" 200 OK"), std::string::npos) << answer.substr(0, 200);
        EXPECT_NE(answer.find(R"("finish_reason":"stop")"), std::string::npos) << answer;
        if (!stream) {
          EXPECT_NE(answer.find(i % 3 ? " nine ten" : "and on and stops."), std::string::npos) << answer;
        }
      }
    });
  }
  for (auto& client : clients) client.join();
}

TEST_F(HttpTest, ClientsLeave) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round)
        talk(server_->port(), chat("[[loop]]", i % 2 == 0), i % 2 == 0 ? 600 : 0);
    });
  }
  for (auto& client : clients) client.join();
  for (int i = 0; i < 500 && service_->engine()->stats().running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(service_->engine()->stats().running, 0);
  EXPECT_NE(talk(server_->port(), chat("[[space]]", false)).find(R"("content":" hello")"), std::string::npos);
}

TEST_F(HttpTest, BrokenBodiesLeaveTheServerAlive) {
  for (const std::string& body :
       {std::string("{"), std::string(100000, '['), std::string("{\"messages\":[{}]}"),
        std::string("{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}"), std::string("\0\0", 2)}) {
    EXPECT_NE(talk(server_->port(), post("/v1/chat/completions", body)).find(" 400 Bad Request"),
              std::string::npos);
  }
  EXPECT_NE(talk(server_->port(), post("/v1/completions", R"({"prompt":")" + std::string(5000, 'a') + "\"}"))
                .find("exceeds the available context size"),
            std::string::npos);
  EXPECT_NE(talk(server_->port(), "GET /health HTTP/1.1\r\nHost: h\r\nX: " + std::string(1 << 20, 'a'))
                .find(" 431 "),
            std::string::npos);
  EXPECT_NE(talk(server_->port(), "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                .find("mlxcel_model_info"),
            std::string::npos);
}

TEST_F(HttpTest, StopsWhileClientsStream) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      const auto answer = talk(server_->port(), chat("[[loop]]", true));
      EXPECT_NE(answer.find("data: [DONE]"), std::string::npos);
    });
  }
  for (int i = 0; i < 500 && service_->engine()->stats().running < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  server_->stop();
  for (auto& client : clients) client.join();
}

}  // namespace
}  // namespace mlxcel
