// GET /v1/models, /models, /v1/models/{id}: what is served.
#include "server/router.h"

namespace mlxcel {
namespace {

HttpResponse json(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

void one_model(Service& service, const std::string& prefix, const std::shared_ptr<Exchange>& exchange) {
  const std::string id = exchange->request().path.substr(prefix.size());
  if (!service.serves(id))
    refuse_param(404, "not_found_error", "model", "model \"{}\" not found", id.substr(0, 200));
  exchange->respond(json(openai::print_model(service.entry())));
}

}  // namespace

void add_model_routes(Router& router) {
  Service& service = router.service();
  auto list = [&service](const auto& exchange) {
    exchange->respond(json(openai::print_models({service.entry()})));
  };
  router.add("GET", "/v1/models", list);
  router.add("GET", "/models", list);
  const std::string prefix = service.options().api_prefix + "/v1/models/";
  router.add("GET", "/v1/models/{id}",
             [&service, prefix](const auto& exchange) { one_model(service, prefix, exchange); });
}

}  // namespace mlxcel
