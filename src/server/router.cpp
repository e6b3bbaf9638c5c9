#include "server/router.h"

#include <algorithm>
#include <cctype>

#include "api/anthropic/error.h"
#include "api/sse.h"
#include "base/log.h"
#include "server/model_pool.h"

namespace mlxcel {
namespace {

/// "{…}" in a pattern stands for one segment that is not empty; a {model} may be owner/name.
bool matches(const std::string& pattern, const std::string& path) {
  const auto open = pattern.find('{');
  if (open == std::string::npos) return pattern == path;
  const std::string_view before = std::string_view(pattern).substr(0, open);
  const std::string_view after = std::string_view(pattern).substr(pattern.find('}') + 1);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after))
    return false;
  const auto segment =
      std::string_view(path).substr(before.size(), path.size() - before.size() - after.size());
  return segment.find('/') == std::string_view::npos || pattern.find("{model}") != std::string::npos;
}

/// A client's own id is kept where it is harmless.
std::string request_id(const HttpRequest& request) {
  const auto given = request.header("x-request-id");
  const bool fine =
      !given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == ':';
      });
  return fine ? std::string(given) : random_id("req_");
}

bool is_json_type(std::string_view value) {
  std::string type(value.substr(0, value.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  return type == "application/json" || type == "text/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

}  // namespace

Dialect dialect_of(const std::string& path) {
  if (path.starts_with("/v1/messages")) return Dialect::anthropic;
  if (path.starts_with("/api/")) return Dialect::ollama;
  return Dialect::openai;
}

Router::Router(Service& service) : service_(service), access_(service.options().access) {}

void Router::add(const std::string& method, const std::string& path, Handler handler) {
  routes_.push_back({method, service_.options().api_prefix + path, std::move(handler), false});
}

void Router::add_public(const std::string& method, const std::string& path, Handler handler) {
  routes_.push_back({method, service_.options().api_prefix + path, std::move(handler), true});
}

std::vector<std::pair<std::string, std::string>> Router::table() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& route : routes_) out.emplace_back(route.method, route.path);
  return out;
}

const Router::Route* Router::match(const std::string& method, const std::string& path) const {
  const std::string& wanted = method == "HEAD" ? "GET" : method;
  for (const auto& route : routes_) {
    if (route.method == wanted && matches(route.path, path)) return &route;
  }
  return nullptr;
}

std::string Router::allowed_methods(const std::string& path) const {
  std::string out;
  for (const auto& route : routes_) {
    if (!matches(route.path, path)) continue;
    if (!out.empty()) out += ", ";
    out += route.method;
    if (route.method == "GET") out += ", HEAD";
  }
  if (!out.empty()) out += ", OPTIONS";
  return out;
}

std::optional<HttpResponse> Router::admit(HttpRequest& request) const {
  request.id = request_id(request);
  request.received = Clock::now();
  request.for_metrics = metrics_alone_;
  const std::string allow = allowed_methods(request.path);
  request.route = "other";
  const std::string& prefix = service_.options().api_prefix;
  if (request.path.starts_with(prefix)) request.dialect = dialect_of(request.path.substr(prefix.size()));
  try {
    access_.check_host(request);
    access_.check_origin(request);
    if (request.method == "OPTIONS") return access_.preflight(request, allow);
    const Route* route = match(request.method, request.path);
    if (route) request.route = route->path;
    if (!route || !route->open) access_.authenticate(request);
    if (allow.empty() && request.dialect == Dialect::ollama)
      refuse(501, "not_supported_error", "not supported by mlxcel");
    if (allow.empty()) refuse(404, "not_found_error", "no route for {}", request.path.substr(0, 200));
    if (!route) {
      auto out =
          error_response({405, "invalid_request_error",
                          fmt::format("{} is not allowed on {}; allowed: {}", request.method.substr(0, 32),
                                      request.path.substr(0, 200), allow),
                          std::nullopt},
                         request);
      out.headers.emplace_back("Allow", allow);
      return out;
    }
    if (service_.state() == Service::State::draining && !route->open) {
      refuse(503, "unavailable_error", "the server is shutting down");
    }
    const auto type = request.header("content-type");
    // Ollama's own examples leave the type to curl, which then says it is a form.
    const bool lenient =
        request.dialect == Dialect::ollama && type.starts_with("application/x-www-form-urlencoded");
    if (request.method == "POST" && !type.empty() && !lenient && !is_json_type(type)) {
      refuse(415, "invalid_request_error", "Content-Type: expected application/json, found {}",
             type.substr(0, 100));
    }
  } catch (...) {
    const ApiError error = current_api_error();
    auto out = error_response(error, request);
    if (error.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
    return out;
  }
  return std::nullopt;
}

ApiError Router::error_in_flight() const {
  try {
    throw;
  } catch (const KeyBusy& busy) {
    return {429, "rate_limit_error", busy.what(), std::nullopt};
  } catch (const Busy& busy) {
    if (service_.state() == Service::State::ready)
      return {503, "server_busy", "All slots are busy", std::nullopt};
    return {503, "unavailable_error", busy.what(), std::nullopt};
  } catch (...) {
    return current_api_error();
  }
}

void Router::handle(const std::shared_ptr<Exchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  try {
    if (ModelPool* pool = service_.pool(); pool && pool->dispatch(*this, exchange)) return;
    const Route* route = match(request.method, request.path);
    if (!route) fail(ErrorKind::internal, "no route for an admitted request");
    const std::string conversation = conversation_of(request);
    route->handler(conversation.empty() ? exchange : recorded(exchange, service_.streams(), conversation));
  } catch (...) {
    const ApiError error = error_in_flight();
    if (error.status >= 500 && error.type == "server_error") {
      log::error("server", "{} {}: {}", request.id, request.route, error.message);
    }
    if (!exchange->answered()) {
      exchange->respond(error_response(error, request));
    } else if (exchange->streaming()) {
      exchange->write(error_event(error, request));
      exchange->close_stream();
    }
  }
}

HttpResponse Router::error_response(const ApiError& error, const HttpRequest& request) const {
  service_.metrics().errors.add({error.type});
  if (error.type == "server_busy") service_.metrics().refused.add({"queue_full"});
  HttpResponse out;
  out.status = error.status;
  switch (request.dialect) {
    case Dialect::openai:
      out.body = print_error(error);
      break;
    case Dialect::anthropic:
      out.body = anthropic::print_error(error, request.id);
      out.status = anthropic::error_status(error);
      out.headers.emplace_back("request-id", request.id);
      break;
    case Dialect::ollama:
      out.body = print_plain_error(error);
      break;
  }
  if (error.status == 429 || error.type == "server_busy") out.headers.emplace_back("Retry-After", "1");
  return out;
}

std::string Router::error_event(const ApiError& error, const HttpRequest& request) const {
  service_.metrics().errors.add({error.type});
  switch (request.dialect) {
    case Dialect::anthropic:
      return sse_named_event("error", anthropic::print_error(error, request.id));
    case Dialect::ollama:
      return print_plain_error(error) + "\n";
    case Dialect::openai:
      break;
  }
  return sse_event(print_error(error));
}

void Router::finish(const HttpRequest& request, HttpResponse& response) const {
  // What never became a request has no id yet.
  response.headers.emplace_back("X-Request-Id", request.id.empty() ? random_id("req_") : request.id);
  access_.add_cors(request, response);
  if (!request.logged) {
    const auto level =
        response.status >= 400 || request.method == "POST" ? log::Level::info : log::Level::debug;
    log::write_if(level, "server", "{} {} {} key={} status={}", request.id, request.method.substr(0, 16),
                  request.route.empty() ? "-" : request.route,
                  request.key_label.empty() ? "-" : request.key_label, response.status);
  }
  if (Traces* traces = service_.traces(); traces && !request.logged && request.received != TimePoint{}) {
    Span span;
    span.name = request.method.substr(0, 16) + " " + request.route;
    span.parent = request.header("traceparent").substr(0, 64);
    span.begin = request.received;
    span.end = Clock::now();
    span.failed = response.status >= 500;
    span.attributes = {{"http.request.method", request.method.substr(0, 16)},
                       {"http.route", request.route},
                       {"http.response.status_code", int64_t{response.status}},
                       {"mlxcel.request_id", request.id}};
    traces->add(std::move(span));
  }
  service_.metrics().requests.add(
      {request.route.empty() ? "other" : request.route, std::to_string(response.status)});
}

void add_all_routes(Router& router) {
  add_health_routes(router);
  add_model_routes(router);
  add_metrics_routes(router);
  add_chat_routes(router);
  add_completion_routes(router);
  add_embedding_routes(router);
  add_message_routes(router);
  add_ollama_chat_routes(router);
  add_ollama_model_routes(router);
  add_native_routes(router);
  add_native_completion_routes(router);
  add_slot_routes(router);
  add_cache_routes(router);
  add_response_routes(router);
  add_stream_routes(router);
  add_setting_routes(router);
  add_rerank_routes(router);
  add_vertex_routes(router, router.service().options().vertex);
}

void add_ignored_fields(HttpResponse& response, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (const auto& name : names) {
    const bool plain =
        !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
        });
    if (list.size() > 1000) {
      list += ", ...";
      break;
    }
    if (!list.empty()) list += ", ";
    list += plain ? name : "?";
  }
  log::debug("server", "fields nobody knows: {}", list);
  response.headers.emplace_back("X-Mlxcel-Ignored-Fields", list);
}

void check_wishes(const HttpRequest& request) {
  if (request.header("x-conversation-id").size() > 256) {
    fail_param("X-Conversation-Id", "X-Conversation-Id: at most 256 characters");
  }
  const auto priority = request.header("x-priority");
  if (priority.empty() || priority == "normal" || priority == "high" || priority == "low") return;
  fail_param("X-Priority", "X-Priority: expected high, normal or low, found {}", priority.substr(0, 64));
}

}  // namespace mlxcel
