#include "server/request_parser.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace mlxcel {

namespace http = boost::beast::http;

struct RequestParser::Impl {
  http::request_parser<http::string_body> parser;
  size_t body_limit = 0;
  bool continues = false;
};

namespace {

constexpr size_t kMaxTarget = 8192;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

RequestParser::Result refusal(int status, std::string message) {
  return {RequestParser::Status::refused, 0, status, std::move(message)};
}

RequestParser::Result explain(const boost::system::error_code& error, const ServerLimits& limits) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refusal(431, fmt::format("the header is larger than {} bytes", limits.header_bytes));
  }
  if (error == http::error::body_limit) {
    return refusal(413, fmt::format("the body is larger than {} bytes", limits.body_bytes));
  }
  if (error == http::error::bad_version) {
    return refusal(400, "malformed HTTP: expected HTTP/1.1 or HTTP/1.0, and lines that end in CRLF");
  }
  return refusal(400, fmt::format("malformed HTTP: {}", error.message()));
}

/// A name or an address, with a port or without: nothing that a URL's host could not hold.
bool is_host(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c >= 0x80 ||
           std::string_view("-._~!$&'()*+,;=:[]%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

/// `host`: of a target in absolute form, which then counts instead of the field.
bool split_target(HttpRequest& request, std::string& host) {
  std::string_view target = request.target;
  // Absolute form, as proxies send it.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lower(target.substr(0, scheme.size())) != scheme) continue;
    const auto end = std::min(target.find_first_of("/?", scheme.size()), target.size());
    host = target.substr(scheme.size(), end - scheme.size());
    if (host.empty()) return false;
    target = target.substr(end);
    if (target.empty()) target = "/";
    if (target.front() == '?') {
      request.query = target.substr(1);
      target = "/";
    }
    break;
  }
  if (target == "*" && request.method == "OPTIONS") {
    request.path = "*";
    return true;
  }
  if (!target.starts_with('/')) return false;
  const auto question = target.find('?');
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  return percent_decode(target.substr(0, question), request.path);
}

}  // namespace

bool percent_decode(std::string_view text, std::string& out) {
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return true;
}

RequestParser::RequestParser(const ServerLimits& limits) : impl_(std::make_unique<Impl>()) {
  impl_->parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  impl_->parser.body_limit(limits.body_bytes);
  impl_->parser.eager(false);
  impl_->body_limit = limits.body_bytes;
  limits_ = &limits;
}

RequestParser::~RequestParser() = default;

RequestParser::Result RequestParser::header(std::string_view input, HttpRequest& request) {
  auto& parser = impl_->parser;
  boost::system::error_code error;
  Result out;
  while (!parser.is_header_done()) {
    out.used += parser.put(boost::asio::buffer(input.data() + out.used, input.size() - out.used), error);
    if (error == http::error::need_more) return out;
    if (error) return explain(error, *limits_);
  }
  const auto& message = parser.get();
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  size_t hosts = 0;
  std::string encoding;  // of every Transfer-Encoding field, in order
  bool encoded = false;
  for (const auto& field : message) {
    std::string name = lower(field.name_string());
    if (name == "host") ++hosts;
    if (name == "transfer-encoding") {
      encoding += (encoded ? "," : "") + std::string(field.value());
      encoded = true;
    }
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  if (request.target.size() > kMaxTarget) return refusal(431, "the request target is too long");
  if (message.version() != 11 && message.version() != 10)
    return refusal(505, "expected HTTP/1.1 or HTTP/1.0");
  std::string host;
  if (!split_target(request, host)) return refusal(400, "malformed HTTP: bad request target");
  if (hosts > 1 || (hosts == 0 && message.version() == 11))
    return refusal(400, "expected exactly one Host header");
  for (auto& [name, value] : request.headers) {
    if (name != "host") continue;
    if (!host.empty()) value = host;
    if (!is_host(value)) return refusal(400, "malformed HTTP: bad Host header");
  }
  // Which of two would count is for no reader to guess.
  for (const char* once :
       {"content-type", "authorization", "x-api-key", "origin", "x-priority", "x-conversation-id"}) {
    const auto count = std::count_if(request.headers.begin(), request.headers.end(),
                                     [once](const auto& field) { return field.first == once; });
    if (count > 1) return refusal(400, fmt::format("the header {} is given {} times", once, count));
  }
  // "gzip, chunked" is framed by chunks too, but what they hold is not the body.
  if (encoded && lower(encoding) != "chunked") {
    return refusal(
        501, fmt::format("Transfer-Encoding: only chunked is understood, found {}", encoding.substr(0, 64)));
  }
  for (const auto& [name, value] : request.headers) {
    if (name != "content-encoding" || value.empty() || lower(value) == "identity") continue;
    return refusal(415, "Content-Encoding: compressed bodies are not accepted");
  }
  if (const auto expect = request.header("expect"); !expect.empty()) {
    if (lower(expect) != "100-continue") return refusal(417, "Expect: only 100-continue is understood");
    impl_->continues = message.version() == 11;
  }
  out.status = Status::done;
  return out;
}

RequestParser::Result RequestParser::body(std::string_view input, HttpRequest& request) {
  auto& parser = impl_->parser;
  parser.eager(true);
  boost::system::error_code error;
  Result out;
  while (!parser.is_done()) {
    if (out.used == input.size()) return out;
    const size_t used =
        parser.put(boost::asio::buffer(input.data() + out.used, input.size() - out.used), error);
    out.used += used;
    if (error == http::error::need_more) return out;
    if (error) return explain(error, *limits_);
  }
  request.body = std::move(parser.get().body());
  out.status = Status::done;
  return out;
}

bool RequestParser::has_body() const { return !impl_->parser.is_done(); }
bool RequestParser::expects_continue() const { return impl_->continues; }
bool RequestParser::keep_alive() const { return impl_->parser.get().keep_alive(); }
bool RequestParser::http_1_0() const { return impl_->parser.get().version() == 10; }

}  // namespace mlxcel
