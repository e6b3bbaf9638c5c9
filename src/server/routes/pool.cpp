// Models of a router: GET /models with their states, load, unload, fetch, remove, and the events of all that.
#include "api/json_node.h"
#include "api/json_writer.h"
#include "hub/store.h"
#include "server/downloads.h"
#include "server/model_pool.h"
#include "server/query.h"

namespace mlxcel {
namespace {

HttpResponse json(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

HttpResponse success() { return json(R"({"success":true})"); }

ModelPool& pool_of(Service& service) {
  ModelPool* pool = service.pool();
  if (!pool || pool->options().single)
    refuse(501, "not_supported_error", "this server keeps the one model it was started with");
  return *pool;
}

std::string named(const HttpRequest& request) {
  const auto name = JsonNode::parse_request(request.body).string("model");
  if (!name || name->empty()) fail_param("model", "model: expected a model's name");
  return *name;
}

std::string status_json(const ModelPool::View& model) {
  JsonWriter out;
  out.begin_object().field("value", model.status).key("args").begin_array().end_array();
  out.field("failed", model.failed);
  if (model.failed) out.field("exit_code", 1).field("error", model.error);
  out.end_object();
  return out.take();
}

void list(Service& service, const std::shared_ptr<Exchange>& exchange) {
  std::vector<openai::ModelEntry> entries;
  if (ModelPool* pool = service.pool()) {
    if (query_parameter(exchange->request(), "reload") == "1") pool->rescan();
    for (const auto& model : pool->models()) {
      if (model.hidden) continue;
      auto entry = model.service->entry();
      entry.more = {{"status", status_json(model)},
                    {"architecture", R"({"input_modalities":["text"],"output_modalities":["text"]})"},
                    {"source", JsonWriter().value(model.source).take()},
                    {"path", JsonWriter().value(model.path).take()},
                    {"can_remove", model.removable ? "true" : "false"}};
      entries.push_back(std::move(entry));
    }
    for (const auto& name : service.downloads().running()) {
      openai::ModelEntry entry;
      entry.id = name;
      entry.more = {{"status", R"({"value":"downloading","args":[],"failed":false})"},
                    {"source", R"("cache")"},
                    {"can_remove", "true"}};
      entries.push_back(std::move(entry));
    }
  } else {
    entries.push_back(service.entry());
  }
  for (auto& entry : service.side_entries()) entries.push_back(std::move(entry));
  exchange->respond(json(openai::print_models(entries)));
}

void one(Service& service, const std::string& prefix, const std::shared_ptr<Exchange>& exchange) {
  const std::string id = exchange->request().path.substr(prefix.size());
  for (const auto& entry : service.side_entries())
    if (entry.id == id) return exchange->respond(json(openai::print_model(entry)));
  if (const ModelPool* pool = service.pool())
    return exchange->respond(json(openai::print_model(pool->model(id).service->entry())));
  if (!service.serves(id))
    refuse_param(404, "not_found_error", "model", "model \"{}\" not found", id.substr(0, 200));
  exchange->respond(json(openai::print_model(service.entry())));
}

std::string progress_json(const Downloads::News& news) {
  JsonWriter out;
  out.begin_object().field("status", news.status);
  if (!news.file.empty())
    out.field("file", news.file).field("total", news.total).field("completed", news.done);
  if (!news.error.empty()) out.field("error", news.error);
  out.end_object();
  return out.take();
}

void fetch(Service& service, const std::shared_ptr<Exchange>& exchange) {
  ModelPool& pool = pool_of(service);
  const std::string name = named(exchange->request());
  service.downloads().start(service.store(), name, [&pool, name](const Downloads::News& news) {
    if (!news.last) return pool.publish(name, "download_progress", progress_json(news));
    if (news.error.empty()) pool.rescan();
    pool.publish(name, news.error.empty() ? "download_finished" : "download_failed", progress_json(news));
    if (news.error.empty()) pool.publish(name, "models_reload", "{}");
  });
  exchange->respond(success());
}

void remove(Service& service, const std::shared_ptr<Exchange>& exchange) {
  ModelPool& pool = pool_of(service);
  const auto name = query_parameter(exchange->request(), "model").value_or("");
  if (name.empty()) fail_param("model", "model name is missing from the request");
  if (service.downloads().cancel(name)) return exchange->respond(success());
  const auto model = pool.model(name);
  if (!model.removable)
    refuse_param(400, "invalid_request_error", "model", "model \"{}\" does not lie in the store; it stays",
                 name.substr(0, 200));
  // An unload waits for requests that run; that must not be this thread.
  const bool taken = exchange->run_blocking([&service, &pool, exchange, id = model.id] {
    std::exception_ptr failure;
    try {
      pool.forget(id);
      remove_model(parse_repository(id), service.store());
      pool.publish(id, "model_remove", "{}");
    } catch (...) {
      failure = std::current_exception();
    }
    exchange->post([exchange, failure, &service] {
      if (!failure) return exchange->respond(success());
      try {
        std::rethrow_exception(failure);
      } catch (...) {
        const ApiError error = current_api_error();
        HttpResponse out = json(print_error(error));
        out.status = error.status;
        exchange->respond(std::move(out));
      }
    });
  });
  if (!taken) refuse(503, "server_busy", "too much waits already");
}

void events(Service& service, const std::shared_ptr<Exchange>& exchange) {
  ModelPool& pool = pool_of(service);
  HttpResponse head;
  head.content_type = "text/event-stream";
  head.headers.emplace_back("Cache-Control", "no-cache");
  exchange->open_stream(std::move(head), service.options().ping_seconds);
  pool.subscribe(exchange);
}

}  // namespace

void add_model_routes(Router& router) {
  Service& service = router.service();
  auto all = [&service](const auto& exchange) { list(service, exchange); };
  router.add("GET", "/v1/models", all);
  router.add("GET", "/models", all);
  const std::string prefix = service.options().api_prefix + "/v1/models/";
  router.add("GET", "/v1/models/{model}",
             [&service, prefix](const auto& exchange) { one(service, prefix, exchange); });
  router.add("POST", "/models/load", [&service](const auto& exchange) {
    pool_of(service).load(named(exchange->request()));
    exchange->respond(success());
  });
  router.add("POST", "/models/unload", [&service](const auto& exchange) {
    pool_of(service).unload(named(exchange->request()));
    exchange->respond(success());
  });
  router.add("POST", "/models", [&service](const auto& exchange) { fetch(service, exchange); });
  router.add("DELETE", "/models", [&service](const auto& exchange) { remove(service, exchange); });
  router.add("GET", "/models/sse", [&service](const auto& exchange) { events(service, exchange); });
}

}  // namespace mlxcel
