// Paths to handlers, and what is the same for all of them: request ids, keys, origins, 404 and 405, the fence
// that turns exceptions into error answers, CORS, counting.
// Owner: the application; outlives the server. Thread: any, immutable once serving.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/error.h"
#include "server/access.h"
#include "server/http.h"
#include "server/service.h"

namespace mlxcel {

class Router {
 public:
  using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

  explicit Router(Service& service);

  /// `path` may end in "/{id}", which matches one segment. HEAD is answered wherever GET is.
  void add(const std::string& method, const std::string& path, Handler handler);
  /// The same, without a key.
  void add_public(const std::string& method, const std::string& path, Handler handler);

  /// Header only, before the body is read: an answer where the request ends here (401, 403, 404, 405, 415,
  /// …).
  std::optional<HttpResponse> admit(HttpRequest& request) const;
  /// Runs the handler; whatever it throws becomes an answer, or an error event in an open stream.
  void handle(const std::shared_ptr<Exchange>& exchange) const;

  /// The exception in flight as an answer; only inside a catch block.
  ApiError error_in_flight() const;
  /// An error answer in the shape of the request's API; counts it.
  HttpResponse error_response(const ApiError& error, const HttpRequest& request) const;
  /// The same inside an open stream: the bytes to send before it closes.
  std::string error_event(const ApiError& error, const HttpRequest& request) const;
  /// X-Request-Id and CORS; counts the request. Every answer passes here once.
  void finish(const HttpRequest& request, HttpResponse& response) const;

  /// This router stands behind a listener for metrics alone (--metrics-port).
  void serve_metrics_alone() { metrics_alone_ = true; }

  /// Method and path of every route, in the order they were added.
  std::vector<std::pair<std::string, std::string>> table() const;

  Service& service() const { return service_; }

 private:
  struct Route {
    std::string method, path;
    Handler handler;
    bool open = false;
  };
  const Route* match(const std::string& method, const std::string& path) const;
  std::string allowed_methods(const std::string& path) const;

  Service& service_;
  Access access_;
  std::vector<Route> routes_;
  bool metrics_alone_ = false;
};

/// Every endpoint of the server, mounted whatever the model is.
void add_all_routes(Router& router);
void add_health_routes(Router& router);
void add_model_routes(Router& router);
void add_metrics_routes(Router& router);
void add_slot_routes(Router& router);
void add_cache_routes(Router& router);
void add_chat_routes(Router& router);
void add_completion_routes(Router& router);
void add_embedding_routes(Router& router);
void add_message_routes(Router& router);
void add_ollama_chat_routes(Router& router);
void add_ollama_model_routes(Router& router);
void add_native_routes(Router& router);
void add_native_completion_routes(Router& router);
void add_response_routes(Router& router);
void add_stream_routes(Router& router);
void add_setting_routes(Router& router);
void add_rerank_routes(Router& router);
/// After all others, since instances name them. invalid_request where a path is taken.
void add_vertex_routes(Router& router, const VertexRoutes& routes);

/// X-Mlxcel-Ignored-Fields of an answer.
void add_ignored_fields(HttpResponse& response, const std::vector<std::string>& names);
/// Refuses headers whose wish cannot be granted.
void check_wishes(const HttpRequest& request);

}  // namespace mlxcel
