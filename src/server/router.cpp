#include "server/router.h"

#include <algorithm>
#include <cctype>

#include "api/sse.h"
#include "base/log.h"

namespace mlxcel {
namespace {

bool matches(const std::string& pattern, const std::string& path) {
  const auto brace = pattern.find("/{");
  if (brace == std::string::npos) return pattern == path;
  return path.size() > brace + 1 && path.compare(0, brace + 1, pattern, 0, brace + 1) == 0 &&
         path.find('/', brace + 1) == std::string::npos;
}

/// A client's own id is kept where it is harmless.
std::string request_id(const HttpRequest& request) {
  const auto given = request.header("x-request-id");
  const bool fine = !given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), [](char c) {
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

Router::Router(Service& service) : service_(service), access_(service.options().access) {}

void Router::add(const std::string& method, const std::string& path, Handler handler) {
  routes_.push_back({method, service_.options().api_prefix + path, std::move(handler), false});
}

void Router::add_public(const std::string& method, const std::string& path, Handler handler) {
  routes_.push_back({method, service_.options().api_prefix + path, std::move(handler), true});
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
  const std::string allow = allowed_methods(request.path);
  request.route = "other";
  try {
    access_.check_origin(request);
    if (request.method == "OPTIONS") return access_.preflight(request, allow);
    const Route* route = match(request.method, request.path);
    if (route) request.route = route->path;
    if (!route || !route->open) access_.authenticate(request);
    if (allow.empty()) refuse(404, "not_found_error", "no route for {}", request.path.substr(0, 200));
    if (!route) {
      auto out = error_response({405, "invalid_request_error",
                                 fmt::format("{} is not allowed on {}; allowed: {}", request.method.substr(0, 32),
                                             request.path.substr(0, 200), allow),
                                 std::nullopt});
      out.headers.emplace_back("Allow", allow);
      return out;
    }
    if (service_.state() == Service::State::draining && !route->open) {
      refuse(503, "unavailable_error", "the server is shutting down");
    }
    const auto type = request.header("content-type");
    if (request.method == "POST" && !type.empty() && !is_json_type(type)) {
      refuse(415, "invalid_request_error", "Content-Type: expected application/json, found {}", type.substr(0, 100));
    }
  } catch (...) {
    const ApiError error = current_api_error();
    auto out = error_response(error);
    if (error.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
    return out;
  }
  return std::nullopt;
}

ApiError Router::error_in_flight() const {
  try {
    throw;
  } catch (const Busy& busy) {
    if (service_.state() == Service::State::ready) return {503, "server_busy", "All slots are busy", std::nullopt};
    return {503, "unavailable_error", busy.what(), std::nullopt};
  } catch (...) {
    return current_api_error();
  }
}

void Router::handle(const std::shared_ptr<Exchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  try {
    const Route* route = match(request.method, request.path);
    if (!route) fail(ErrorKind::internal, "no route for an admitted request");
    route->handler(exchange);
  } catch (...) {
    const ApiError error = error_in_flight();
    if (error.status >= 500 && error.type == "server_error") {
      log::error("server", "{} {}: {}", request.id, request.route, error.message);
    }
    if (!exchange->answered()) {
      exchange->respond(error_response(error));
    } else if (exchange->streaming()) {
      service_.metrics().errors.add({error.type});
      exchange->write(sse_event(print_error(error)));
      exchange->close_stream();
    }
  }
}

HttpResponse Router::error_response(const ApiError& error) const {
  service_.metrics().errors.add({error.type});
  if (error.type == "server_busy") service_.metrics().refused.add({"queue_full"});
  HttpResponse out;
  out.status = error.status;
  out.body = print_error(error);
  if (error.status == 429 || error.type == "server_busy") out.headers.emplace_back("Retry-After", "1");
  return out;
}

void Router::finish(const HttpRequest& request, HttpResponse& response) const {
  // What never became a request has no id yet.
  response.headers.emplace_back("X-Request-Id", request.id.empty() ? random_id("req_") : request.id);
  access_.add_cors(request, response);
  if (!request.logged) {
    const auto level = response.status >= 400 || request.method == "POST" ? log::Level::info : log::Level::debug;
    log::write_if(level, "server", "{} {} {} key={} status={}", request.id, request.method.substr(0, 16),
                  request.route.empty() ? "-" : request.route, request.key_label.empty() ? "-" : request.key_label,
                  response.status);
  }
  service_.metrics().requests.add({request.route.empty() ? "other" : request.route, std::to_string(response.status)});
}

void add_all_routes(Router& router) {
  add_health_routes(router);
  add_model_routes(router);
  add_metrics_routes(router);
  add_chat_routes(router);
  add_completion_routes(router);
  add_embedding_routes(router);
}

void add_ignored_fields(HttpResponse& response, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (const auto& name : names) {
    const bool plain = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
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
  if (!request.header("x-conversation-id").empty()) {
    fail_param("X-Conversation-Id", "X-Conversation-Id: resumable streams are not supported yet");
  }
  const auto priority = request.header("x-priority");
  if (priority.empty() || priority == "normal") return;
  if (priority == "high" || priority == "low") {
    fail_param("X-Priority", "X-Priority: {} is not supported yet; only normal", priority);
  }
  fail_param("X-Priority", "X-Priority: expected high, normal or low, found {}", priority.substr(0, 64));
}

}  // namespace mlxcel
