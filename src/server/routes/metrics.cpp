// GET /metrics: Prometheus text; a scrape evaluates nothing.
#include "server/router.h"

namespace mlxcel {
namespace {

void metrics(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (!service.options().metrics && !exchange->request().for_metrics) {
    refuse(501, "not_supported_error", "metrics are off; start the server with --metrics");
  }
  Metrics::Labels labels{.version = MLXCEL_VERSION,
                         .mlx = "",
                         .backend = MLXCEL_BACKEND_NAME,
                         .id = "",
                         .family = "",
                         .kv_mode = ""};
  labels.mlx = service.options().mlx_version;
  HttpResponse out;
  out.content_type = "text/plain; version=0.0.4; charset=utf-8";
  out.headers.emplace_back("Process-Start-Time-Unix", std::to_string(service.metrics().start_unix.load()));
  const auto stats = service.stats();
  if (const auto engine = service.engine()) {
    labels.id = service.options().model_id;
    labels.family = engine->info().family;
    labels.kv_mode = engine->kv_label();
  }
  out.body = service.metrics().print(stats ? &*stats : nullptr, labels);
  exchange->respond(std::move(out));
}

}  // namespace

void add_metrics_routes(Router& router) {
  router.add("GET", "/metrics",
             [&service = router.service()](const auto& exchange) { metrics(service, exchange); });
}

}  // namespace mlxcel
