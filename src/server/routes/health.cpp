// GET /health, GET /: what a supervisor and a browser ask first.
#include "server/router.h"

namespace mlxcel {
namespace {

void health(Service& service, const std::shared_ptr<Exchange>& exchange) {
  switch (service.state()) {
    case Service::State::loading:
      refuse(503, "unavailable_error", "Loading model");
    case Service::State::draining:
      refuse(503, "unavailable_error", "the server is shutting down");
    case Service::State::stopped:
      refuse(503, "unavailable_error", "Engine stopped");
    case Service::State::ready:
    case Service::State::sleeping:
      break;
  }
  const bool alone = service.state() == Service::State::ready && !service.pool();
  if (alone && (!service.engine() || service.failed())) refuse(503, "unavailable_error", "Engine stopped");
  HttpResponse out;
  out.body = R"({"status":"ok"})";
  exchange->respond(std::move(out));
}

}  // namespace

void add_health_routes(Router& router) {
  auto handler = [&service = router.service()](const auto& exchange) { health(service, exchange); };
  router.add_public("GET", "/health", handler);
  router.add_public("GET", "/v1/health", handler);
  router.add_public("GET", "/", [](const auto& exchange) {
    HttpResponse out;
    out.content_type = "text/plain; charset=utf-8";
    out.body = "mlxcel is running";
    exchange->respond(std::move(out));
  });
}

}  // namespace mlxcel
