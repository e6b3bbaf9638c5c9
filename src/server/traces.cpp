#include "server/traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdlib>
#include <random>

#include "api/json_writer.h"
#include "base/error.h"
#include "base/log.h"

namespace mlxcel {
namespace {

constexpr size_t kMostWaiting = 4096, kBatch = 512;
constexpr auto kPeriod = std::chrono::seconds(1);
constexpr auto kPatience = std::chrono::seconds(2);

std::string random_hex(size_t digits) {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < digits; ++i) out += kDigits[generator() & 15];
  return out;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         text.find_first_not_of('0') != std::string_view::npos;
}

/// Steady time as the wall clock showed it, in nanoseconds.
std::string unix_nanoseconds(TimePoint at) {
  const auto ago = Clock::now() - at;
  const auto wall =
      std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(ago);
  return std::to_string(
      std::chrono::duration_cast<std::chrono::nanoseconds>(wall.time_since_epoch()).count());
}

struct PrintValue {
  JsonWriter& out;
  void operator()(const std::string& text) const { out.field("stringValue", text); }
  void operator()(int64_t number) const { out.field("intValue", std::to_string(number)); }
  void operator()(double number) const { out.field("doubleValue", number); }
};

}  // namespace

std::pair<std::string, std::string> trace_parent(std::string_view header) {
  // 00-<32 hex digits>-<16 hex digits>-<2 hex digits>
  if (header.size() != 55 || !header.starts_with("00-") || header[35] != '-' || header[52] != '-') return {};
  const auto trace = header.substr(3, 32), parent = header.substr(36, 16);
  if (!is_hex(trace, 32) || !is_hex(parent, 16)) return {};
  return {std::string(trace), std::string(parent)};
}

std::string print_spans(const std::deque<Span>& spans, const std::string& service_name) {
  JsonWriter out;
  out.begin_object().key("resourceSpans").begin_array().begin_object();
  out.key("resource").begin_object().key("attributes").begin_array().begin_object();
  out.field("key", "service.name")
      .key("value")
      .begin_object()
      .field("stringValue", service_name)
      .end_object();
  out.end_object().end_array().end_object();
  out.key("scopeSpans")
      .begin_array()
      .begin_object()
      .key("scope")
      .begin_object()
      .field("name", "mlxcel")
      .end_object();
  out.key("spans").begin_array();
  for (const auto& span : spans) {
    const auto [trace, parent] = trace_parent(span.parent);
    out.begin_object()
        .field("traceId", trace.empty() ? random_hex(32) : trace)
        .field("spanId", random_hex(16));
    if (!parent.empty()) out.field("parentSpanId", parent);
    out.field("name", span.name).field("kind", 2);
    out.field("startTimeUnixNano", unix_nanoseconds(span.begin))
        .field("endTimeUnixNano", unix_nanoseconds(span.end));
    out.key("attributes").begin_array();
    for (const auto& [name, value] : span.attributes) {
      out.begin_object().field("key", name).key("value").begin_object();
      std::visit(PrintValue{out}, value);
      out.end_object().end_object();
    }
    out.end_array().key("status").begin_object();
    if (span.failed) out.field("code", 2);
    out.end_object().end_object();
  }
  out.end_array().end_object().end_array().end_object().end_array().end_object();
  return out.take();
}

Traces::Traces(const std::string& endpoint, std::string service_name)
    : service_name_(std::move(service_name)) {
  static constexpr std::string_view kPlain = "http://", kTls = "https://";
  tls_ = endpoint.starts_with(kTls);
  if (!tls_ && !endpoint.starts_with(kPlain))
    fail_param("--otlp-endpoint", "--otlp-endpoint {}: expected http[s]://host[:port][/path]", endpoint);
  const std::string rest = endpoint.substr(tls_ ? kTls.size() : kPlain.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string authority = rest.substr(0, slash);
  path_ = rest.substr(slash);
  if (path_.empty() || path_ == "/") path_ = "/v1/traces";
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string::npos && authority.find(']', colon) == std::string::npos;
  host_ = has_port ? authority.substr(0, colon) : authority;
  port_ = has_port ? authority.substr(colon + 1) : "4318";
  if (host_.starts_with('[') && host_.ends_with(']')) host_ = host_.substr(1, host_.size() - 2);
  const bool digits = !port_.empty() && port_.find_first_not_of("0123456789") == std::string::npos;
  if (host_.empty() || !digits || endpoint.find_first_of(" \r\n@") != std::string::npos)
    fail_param("--otlp-endpoint", "--otlp-endpoint {}: expected http[s]://host[:port][/path]", endpoint);
  thread_ = std::thread([this] { run(); });
}

Traces::~Traces() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  thread_.join();
}

void Traces::add(Span span) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostWaiting) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(span));
  if (waiting_.size() >= kBatch) ready_.notify_one();
}

void Traces::run() {
  TimePoint complained{};
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait_for(lock, kPeriod, [this] { return stopping_ || waiting_.size() >= kBatch; });
    const bool last = stopping_;
    std::deque<Span> batch;
    batch.swap(waiting_);
    if (!batch.empty()) {
      lock.unlock();
      const bool sent = post(print_spans(batch, service_name_));
      if (!sent) {
        dropped_ += batch.size();
        const auto now = Clock::now();
        if (complained == TimePoint{} || seconds_between(complained, now) > 60) {
          complained = now;
          log::warn("server", "traces: the collector at {}:{} takes none; {} spans dropped so far", host_,
                    port_, dropped_.load());
        }
      }
      lock.lock();
    }
    if (last) return;
  }
}

namespace {

/// The authorities that a collector's certificate may come from.
void trust(boost::asio::ssl::context& context) {
  boost::system::error_code ignored;
  context.set_default_verify_paths(ignored);
  if (const char* more = std::getenv("MLXCEL_EXTRA_CA_CERTS"); more && *more)
    context.load_verify_file(more, ignored);
}

/// One request and the first line of its answer over a stream that is connected.
struct Post {
  std::string head;
  const std::string& body;
  std::string answer = std::string(32, '\0');
  bool good = false;

  template <class Stream>
  void over(Stream& stream) {
    namespace asio = boost::asio;
    const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
    asio::async_write(stream, parts, [this, &stream](auto broken, size_t) {
      if (broken) return;
      asio::async_read(stream, asio::buffer(answer), asio::transfer_at_least(12), [this](auto, size_t count) {
        good = count >= 12 && answer.starts_with("HTTP/1.") && answer.substr(8, 2) == " 2";
      });
    });
  }
};

}  // namespace

bool Traces::post(const std::string& body) const {
  namespace asio = boost::asio;
  using asio::ip::tcp;
  asio::io_context io;
  asio::ssl::context context(asio::ssl::context::tls_client);
  if (tls_) trust(context);
  asio::ssl::stream<tcp::socket> stream(io, context);
  tcp::resolver resolver(io);
  Post post{.head = fmt::format("POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
                                "Content-Length: {}\r\nConnection: close\r\n\r\n",
                                path_, host_, port_, body.size()),
            .body = body};
  resolver.async_resolve(host_, port_, [&](auto error, const auto& found) {
    if (error) return;
    asio::async_connect(stream.next_layer(), found, [&](auto failed, const tcp::endpoint&) {
      if (failed) return;
      if (!tls_) return post.over(stream.next_layer());
      stream.set_verify_mode(asio::ssl::verify_peer);
      stream.set_verify_callback(asio::ssl::host_name_verification(host_));
      SSL_set_tlsext_host_name(stream.native_handle(), host_.c_str());
      stream.async_handshake(asio::ssl::stream_base::client, [&](auto refused) {
        if (!refused) post.over(stream);
      });
    });
  });
  io.run_for(kPatience);
  return post.good;
}

}  // namespace mlxcel
