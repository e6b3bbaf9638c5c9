// Spans as a collector reads them, and one that is sent to a socket.
#include "server/traces.h"

#include <gtest/gtest.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

Span span_of(const std::string& name) {
  Span out;
  out.name = name;
  out.parent = kParent;
  out.begin = Clock::now() - std::chrono::milliseconds(20);
  out.end = Clock::now();
  out.attributes = {{"http.route", "/v1/x"}, {"http.response.status_code", int64_t{200}}, {"ms", 1.5}};
  return out;
}

TEST(Traces, ParentsAreReadOrLeft) {
  EXPECT_EQ(trace_parent(kParent).first, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace_parent(kParent).second, "b7ad6b7169203331");
  for (const std::string bad : {"", "00", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                "00-0af7651916cd43dd8448eb211c80319cxb7ad6b7169203331-01"}) {
    EXPECT_EQ(trace_parent(bad).first, "") << bad;
  }
}

TEST(Traces, SpansAreOtlpJson) {
  const auto all = nlohmann::json::parse(print_spans({span_of("POST /v1/x")}, "mlxcel"));
  const auto& span = all["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(span["spanId"].get<std::string>().size(), 16u);
  EXPECT_EQ(span["name"], "POST /v1/x");
  EXPECT_EQ(span["attributes"][1]["value"]["intValue"], "200");
  const auto begin = std::stoll(span["startTimeUnixNano"].get<std::string>());
  const auto end = std::stoll(span["endTimeUnixNano"].get<std::string>());
  EXPECT_NEAR(static_cast<double>(end - begin), 20e6, 15e6);
}

TEST(Traces, AddressesAreChecked) {
  for (const char* bad :
       {"", "https://", "http://", "http://:80", "http://a:b", "http://user@host", "ftp://x"})
    EXPECT_THROW(Traces(bad, "mlxcel"), Error) << bad;
}

TEST(Traces, ArriveAtACollector) {
  namespace asio = boost::asio;
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  std::string head, body;
  std::thread collector([&] {
    asio::ip::tcp::socket socket(io);
    acceptor.accept(socket);
    std::string data;
    const size_t end = asio::read_until(socket, asio::dynamic_buffer(data), "\r\n\r\n");
    head = data.substr(0, end);
    body = data.substr(end);
    const auto at = head.find("Content-Length: ");
    const auto length = static_cast<size_t>(std::stoul(head.substr(at + 16)));
    while (body.size() < length) {
      std::array<char, 4096> more{};
      body.append(more.data(), socket.read_some(asio::buffer(more)));
    }
    asio::write(socket, asio::buffer(std::string("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")));
  });
  {
    Traces traces("http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()), "mlxcel");
    traces.add(span_of("one"));
    traces.add(span_of("two"));
  }
  collector.join();
  EXPECT_TRUE(head.starts_with("POST /v1/traces HTTP/1.1\r\n")) << head;
  EXPECT_EQ(nlohmann::json::parse(body)["resourceSpans"][0]["scopeSpans"][0]["spans"].size(), 2u);
}

TEST(Traces, ACollectorThatIsAwayCostsNothing) {
  const auto before = Clock::now();
  uint64_t dropped = 0;
  {
    Traces traces("http://127.0.0.1:1", "mlxcel");  // nobody listens there
    for (int i = 0; i < 5000; ++i) traces.add(span_of("x"));
    dropped = traces.dropped();
  }
  EXPECT_LT(seconds_between(before, Clock::now()), 10);
  EXPECT_LE(dropped, 5000u);
}

}  // namespace
}  // namespace mlxcel
