// The parts under the sockets: parser, access, metrics, router.
#include <gtest/gtest.h>

#include "api/json_node.h"
#include "server/access.h"
#include "server/metrics.h"
#include "server/request_parser.h"
#include "server/router.h"

namespace mlxcel {
namespace {

using Status = RequestParser::Status;

/// Feeds `text` in pieces of `step` bytes; returns the refusal's status, 0 when done, -1 when more is needed.
int feed(const std::string& text, size_t step, HttpRequest& request, const ServerLimits& limits = {},
         std::string* rest = nullptr) {
  RequestParser parser(limits);
  std::string input;
  bool in_body = false;
  size_t next = 0;
  for (;;) {
    const auto result = in_body ? parser.body(input, request) : parser.header(input, request);
    input.erase(0, result.used);
    if (result.status == Status::refused) return result.refusal;
    if (result.status == Status::done) {
      if (in_body || !parser.has_body()) {
        if (rest) *rest = input + text.substr(next);
        return 0;
      }
      in_body = true;
      continue;
    }
    if (next >= text.size()) return -1;
    input += text.substr(next, step);
    next += step;
    next = std::min(next, text.size());
  }
}

TEST(RequestParser, ReadsInPiecesOfAnySize) {
  const std::string text =
      "POST /v1/x%20y?a=b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-Y:  z \r\n\r\nhelloGET / "
      "HTTP/1.1\r\n";
  for (size_t step = 1; step < 40; ++step) {
    HttpRequest request;
    std::string rest;
    ASSERT_EQ(feed(text, step, request, {}, &rest), 0) << step;
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/x y");
    EXPECT_EQ(request.query, "a=b");
    EXPECT_EQ(request.header("x-y"), "z");
    EXPECT_EQ(request.body, "hello");
    EXPECT_EQ(rest, "GET / HTTP/1.1\r\n") << step;
  }
}

TEST(RequestParser, ReadsChunks) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\nrest";
  for (size_t step : {1u, 2u, 7u, 500u}) {
    HttpRequest request;
    std::string rest;
    ASSERT_EQ(feed(text, step, request, {}, &rest), 0) << step;
    EXPECT_EQ(request.body, "abc0123456789");
    EXPECT_EQ(rest, "rest");
  }
}

TEST(RequestParser, RefusesBadFraming) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  for (const std::string& text :
       {head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", head + "Content-Length: +3\r\n\r\nabc",
        head + "Content-Length: 3, 4\r\n\r\nabc", head + "Content-Length: 99999999999999999999999\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\nG\r\n", head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        std::string("POST / HTTP/1.1\r\n\r\n"), head + "Host: g\r\n\r\n",
        std::string("GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n"),
        std::string("GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n"),
        std::string("GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n"), std::string("GET x HTTP/1.1\r\nHost: h\r\n\r\n"),
        head + "A b: c\r\n\r\n", head + ": c\r\n\r\n", head + "A: \x01\r\n\r\n"}) {
    for (size_t step : {1u, 1000u}) {
      HttpRequest request;
      EXPECT_GE(feed(text, step, request), 400) << text;
    }
  }
}

TEST(RequestParser, TakesNoCodingButChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n", body = "3\r\nabc\r\n0\r\n\r\n";
  for (const std::string coding : {"gzip", "gzip, chunked", "chunked, gzip", "identity", "identity, chunked",
                                   "chunked, chunked", "xchunked", "chunked;q=1"}) {
    for (const size_t step : {1u, 1000u}) {
      HttpRequest request;
      const int status = feed(head + "Transfer-Encoding: " + coding + "\r\n\r\n" + body, step, request);
      EXPECT_TRUE(status == 501 || status == 400) << coding << ": " << status;
      EXPECT_TRUE(request.body.empty()) << coding;
    }
  }
  for (const std::string fields :
       {"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\n"}) {
    HttpRequest request;
    EXPECT_GE(feed(head + fields + "\r\n" + body, 1000, request), 400) << fields;
  }
  HttpRequest request;
  EXPECT_EQ(
      feed(head + "Transfer-Encoding: Chunked\r\nContent-Encoding: IDENTITY\r\n\r\n" + body, 7, request), 0);
  EXPECT_EQ(request.body, "abc");
}

TEST(RequestParser, KnowsWhoIsMeant) {
  const auto host = [](const std::string& target, const std::string& fields) {
    HttpRequest request;
    const int status = feed("GET " + target + " HTTP/1.1\r\n" + fields + "\r\n", 1000, request);
    return status == 0 ? std::string(request.header("host")) + " " + request.path + "?" + request.query
                       : std::to_string(status);
  };
  EXPECT_EQ(host("/a", "Host: h:80\r\n"), "h:80 /a?");
  EXPECT_EQ(host("/a", "Host: [::1]:80\r\n"), "[::1]:80 /a?");
  // A target in absolute form says more than the field.
  EXPECT_EQ(host("http://evil.example/a?b=c", "Host: h\r\n"), "evil.example /a?b=c");
  EXPECT_EQ(host("HTTP://h:1", "Host: x\r\n"), "h:1 /?");
  EXPECT_EQ(host("https://h?b", "Host: x\r\n"), "h /?b");
  for (const char* target : {"http://", "http:///a", "http://a b/", "ftp://h/a"})
    EXPECT_EQ(host(target, "Host: h\r\n"), "400") << target;
  for (const char* fields : {"Host: a b\r\n", "Host: a/b\r\n", "Host: u@h\r\n", "Host: h\r\nHost: h\r\n",
                             "Host: h\r\nContent-Type: a\r\nContent-Type: b\r\n",
                             "Host: h\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
                             "Host: h\r\nX-Api-Key: a\r\nX-Api-Key: a\r\n"})
    EXPECT_EQ(host("/a", fields), "400") << fields;
}

TEST(RequestParser, NeverAcceptsWhatItStillWaitsOn) {
  // Not refused at once in every cut, but never a request: the time limit ends them.
  for (const std::string& text :
       {std::string("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n"),
        std::string("GET / HTTP/1.1\nHost: h\n\n"), std::string("GET / HTTP/1.1\r\nHost: h\r\n")}) {
    for (size_t step : {1u, 1000u}) {
      HttpRequest request;
      EXPECT_NE(feed(text, step, request), 0) << text;
    }
  }
}

TEST(RequestParser, BoundsHeaderAndBody) {
  ServerLimits limits;
  limits.header_bytes = 1024;
  limits.body_bytes = 10;
  HttpRequest request;
  EXPECT_EQ(
      feed("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(2000, 'a') + "\r\n\r\n", 100, request, limits),
      431);
  EXPECT_EQ(feed("GET /" + std::string(2000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 100, request, limits),
            431);
  EXPECT_EQ(feed("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 5000, request), 431);
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(feed(head + "Content-Length: 11\r\n\r\nabc", 1000, request, limits), 413);
  EXPECT_EQ(feed(head + "Transfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n", 1000,
                 request, limits),
            413);
  HttpRequest fits;
  EXPECT_EQ(feed(head + "Content-Length: 10\r\n\r\n0123456789", 3, fits, limits), 0);
  EXPECT_EQ(fits.body.size(), 10u);
}

TEST(Access, SplitsKeyLists) {
  EXPECT_EQ(split_keys("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(split_keys("\"a,b\",c"), (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(split_keys(" a , b"), (std::vector<std::string>{" a ", " b"}));
  EXPECT_EQ(split_keys("\"x\"\"y\""), (std::vector<std::string>{"x\"y"}));
  EXPECT_TRUE(split_keys(",,").empty());
}

TEST(Access, KnowsOrigins) {
  for (const char* good : {"http://a", "https://a.example:8080", "http://[::1]:80", "tauri://localhost"})
    EXPECT_TRUE(is_origin(good)) << good;
  for (const char* bad : {"", "a", "http://", "://a", "http://a/", "http://a b", "http://a:", "http://a:x",
                          "http://u@a", "http://a,http://b", "http://a\r\nX: y"})
    EXPECT_FALSE(is_origin(bad)) << bad;
}

HttpRequest with(HttpHeaders headers) {
  HttpRequest request;
  request.method = "GET";
  request.path = "/";
  request.headers = std::move(headers);
  return request;
}

int key_status(const Access& access, HttpHeaders headers) {
  auto request = with(std::move(headers));
  try {
    access.authenticate(request);
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.error().message, "Invalid API Key");
    return refusal.error().status;
  }
  EXPECT_EQ(request.key_label.size(), 8u);
  return 200;
}

TEST(Access, ComparesKeys) {
  AccessOptions options;
  options.keys = {"one-key", "another"};
  const Access access(options);
  EXPECT_EQ(key_status(access, {}), 401);
  EXPECT_EQ(key_status(access, {{"authorization", "Bearer one-key"}}), 200);
  EXPECT_EQ(key_status(access, {{"authorization", "bearer another"}}), 200);
  EXPECT_EQ(key_status(access, {{"x-api-key", "another"}}), 200);
  EXPECT_EQ(key_status(access, {{"x-api-key", "wrong"}, {"authorization", "Bearer one-key"}}), 401);
  EXPECT_EQ(key_status(access, {{"authorization", "Bearer one-ke"}}), 401);
  EXPECT_EQ(key_status(access, {{"authorization", "Bearer one-keyy"}}), 401);
  EXPECT_EQ(key_status(access, {{"authorization", "one-key"}}), 401);
}

AccessOptions origins(const std::string& text, bool credentials = true) {
  AccessOptions options;
  options.cors_origins = text;
  options.cors_credentials = credentials;
  return options;
}

std::string cors(AccessOptions options, const std::string& origin) {
  const Access access(std::move(options));
  HttpResponse response;
  access.add_cors(with({{"origin", origin}}), response);
  for (const auto& [name, value] : response.headers) {
    if (name == "Access-Control-Allow-Origin") return value;
  }
  return "";
}

TEST(Access, Cors) {
  EXPECT_EQ(cors({}, "http://a"), "http://a");
  EXPECT_EQ(cors(origins("*", false), "http://a"), "*");
  EXPECT_EQ(cors(origins("localhost"), "http://localhost:3000"), "http://localhost:3000");
  EXPECT_EQ(cors(origins("localhost"), "http://localhost.evil.example"), "");
  EXPECT_EQ(cors(origins("http://b"), "http://a"), "http://b");
  AccessOptions listed;
  listed.allowed_origins = {"http://a"};
  EXPECT_EQ(cors(listed, "http://a"), "http://a");
  EXPECT_EQ(cors(listed, "http://b"), "");
  const Access access(listed);
  EXPECT_THROW(access.check_origin(with({{"origin", "http://b"}})), Refusal);
  EXPECT_NO_THROW(access.check_origin(with({})));
}

TEST(Metrics, PrintsPrometheusText) {
  Metrics metrics;
  metrics.requests.add({"/v1/x", "200"}, 3);
  metrics.requests.add({"a\"b\\c\n", "400"});
  metrics.first_token.observe(0.003);
  metrics.first_token.observe(1e9);
  EngineStats stats;
  stats.generated_tokens = 10;
  stats.decode_seconds = 2;
  stats.pages_total = 8;
  stats.pages_free = 5;
  const auto text = metrics.print(&stats, {"1.0", "0.32", "cpu", "m", "llama", "f16"});
  EXPECT_NE(text.find("llamacpp:predicted_tokens_seconds 5\n"), std::string::npos);
  EXPECT_NE(text.find("mlxcel_requests_total{route=\"/v1/x\",status=\"200\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("route=\"a\\\"b\\\\c\\n\""), std::string::npos);
  EXPECT_NE(text.find("mlxcel_time_to_first_token_seconds_bucket{le=\"0.005\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("mlxcel_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("mlxcel_kv_pool_blocks{state=\"used\"} 3\n"), std::string::npos);
  const auto again = metrics.print(&stats, {});
  EXPECT_NE(again.find("llamacpp:predicted_tokens_seconds 0\n"),
            std::string::npos);  // nothing since the last scrape
  EXPECT_EQ(metrics.print(nullptr, {}).find("llamacpp:"), std::string::npos);
}

TEST(Metrics, PrintsWhatTheEngineCounts) {
  Metrics metrics;
  EngineStats stats;
  for (const uint64_t tokens : {1, 2, 3, 4096, 5000}) stats.step_tokens.observe(tokens);
  for (const auto& [place, right] : {std::pair(0, true), {1, true}, {2, false}, {0, false}})
    stats.draft_places.test(static_cast<size_t>(place), right);
  stats.cache_evictions = 6;  // of these:
  stats.cache_evicted_for_pages = 4;
  stats.cache_rejected_short = 5;
  stats.snapshot_hits = 6;
  stats.memory_active = 7;
  stats.memory_limit = 8;
  const auto text = metrics.print(&stats, {});
  for (const char* line :
       {"mlxcel_step_tokens_bucket{le=\"1\"} 1\n", "mlxcel_step_tokens_bucket{le=\"4\"} 3\n",
        "mlxcel_step_tokens_bucket{le=\"4096\"} 4\n", "mlxcel_step_tokens_bucket{le=\"+Inf\"} 5\n",
        "mlxcel_step_tokens_sum 9102\nmlxcel_step_tokens_count 5\n",
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 1\n",
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"2\"} 0\n",
        "mlxcel_prompt_cache_evictions_total{reason=\"pages\"} 4\n",
        "mlxcel_prompt_cache_evictions_total{reason=\"capacity\"} 2\n",
        "mlxcel_prompt_cache_reject_total{reason=\"too_short\"} 5\n",
        "mlxcel_prompt_cache_snapshot_hits_total 6\n", "mlxcel_memory_bytes{kind=\"active\"} 7\n",
        "mlxcel_memory_bytes{kind=\"limit\"} 8\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(text.find("position=\"3\""), std::string::npos) << "no place that was never tried";
}

TEST(Router, AdmitsAndRefuses) {
  ServiceOptions options;
  options.access.keys = {"secret"};
  options.model_id = "m";
  Service service(options);
  Router router(service);
  add_all_routes(router);
  auto status = [&](const std::string& method, const std::string& path, HttpHeaders headers) {
    auto request = with(std::move(headers));
    request.method = method;
    request.path = path;
    const auto answer = router.admit(request);
    EXPECT_FALSE(request.id.empty());
    return answer ? answer->status : 0;
  };
  const HttpHeaders key = {{"x-api-key", "secret"}};
  EXPECT_EQ(status("GET", "/health", {}), 0);
  EXPECT_EQ(status("HEAD", "/", {}), 0);
  EXPECT_EQ(status("GET", "/v1/models", {}), 401);
  EXPECT_EQ(status("GET", "/v1/models", key), 0);
  EXPECT_EQ(status("GET", "/v1/models/x", key), 0);
  EXPECT_EQ(status("GET", "/v1/models/owner/name", key), 0);
  EXPECT_EQ(status("GET", "/v1/responses/x/input_items", key), 404);
  EXPECT_EQ(status("GET", "/api/nothing", key), 501);
  EXPECT_EQ(status("GET", "/v1/models/", key), 404);
  EXPECT_EQ(status("GET", "/nothing", {}), 401);
  EXPECT_EQ(status("GET", "/nothing", key), 404);
  EXPECT_EQ(status("PUT", "/v1/chat/completions", key), 405);
  EXPECT_EQ(status("OPTIONS", "/v1/chat/completions", {}), 200);
  EXPECT_EQ(status("POST", "/v1/completions", {{"x-api-key", "secret"}, {"content-type", "text/plain"}}),
            415);
  EXPECT_EQ(status("POST", "/v1/completions",
                   {{"x-api-key", "secret"}, {"content-type", "APPLICATION/JSON; charset=utf-8"}}),
            0);
  service.set_state(Service::State::draining);
  EXPECT_EQ(status("POST", "/v1/completions", key), 503);
}

TEST(Service, DefaultsGiveWayToFields) {  // H32, server.md 2.6
  ServiceOptions options;
  options.sampling.temperature = 0.3f;
  options.sampling.seed = 5;
  const Service service(options);
  openai::SamplingFields fields;
  auto params = service.sampling(fields);
  EXPECT_EQ(params.temperature, 0.3f);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.top_p, 0.95f);
  EXPECT_EQ(params.min_p, 0.05f);
  EXPECT_EQ(params.seed, 5u);
  fields.temperature = 0.0f;
  fields.top_k = 0;
  fields.top_p = 0.0f;
  fields.seed_given = true;  // an explicit "fresh one"
  params = service.sampling(fields);
  EXPECT_EQ(params.temperature, 0.0f);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 0.0f);
  EXPECT_FALSE(params.seed.has_value());
}

TEST(Headers, IgnoredFieldsCannotSplitTheAnswer) {
  HttpResponse response;
  add_ignored_fields(response, {"good", "a\r\nX: y", ""});
  ASSERT_EQ(response.headers.size(), 1u);
  EXPECT_EQ(response.headers[0].second, "good, ?, ?");
}

}  // namespace
}  // namespace mlxcel
