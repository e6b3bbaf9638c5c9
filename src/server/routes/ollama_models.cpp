// Ollama's models: GET /api/tags, /api/ps, /api/version, POST /api/show, /api/pull, DELETE /api/delete;
// routes that are not served say so.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "api/json_node.h"
#include "api/json_writer.h"
#include "api/ollama/ollama.h"
#include "hub/store.h"
#include "server/access.h"
#include "server/downloads.h"
#include "server/model_pool.h"

namespace mlxcel {
namespace {

constexpr const char* kImitatedVersion = "0.12.0";  // the API level; clients compare it

std::string unix_text(int64_t seconds) { return ollama::rfc3339(seconds * 1'000'000'000); }

std::string parameter_size(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", static_cast<double>(count) / 1e9);
  return fmt::format("{:.1f}M", static_cast<double>(count) / 1e6);
}

int64_t modified_seconds(const std::filesystem::path& path, int64_t otherwise) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) return otherwise;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

ollama::ModelDetails served(const Service& service) {
  const auto entry = service.entry();
  ollama::ModelDetails out;
  out.name = entry.id;
  out.format = entry.format;
  out.family = entry.family;
  out.parameter_size = parameter_size(entry.n_params);
  out.quantization = entry.quantization;
  out.size = entry.size;
  out.context = entry.n_ctx;
  int64_t modified = entry.created;
  if (const auto engine = service.engine()) modified = modified_seconds(engine->checkpoint().path, modified);
  out.modified_at = unix_text(modified);
  out.expires_at = "2318-01-01T00:00:00Z";  // it stays
  out.digest = hex(sha256(
      fmt::format("{}\n{}\n{}\n{}\n{}", entry.id, entry.size, entry.n_params, entry.quantization, modified)));
  return out;
}

HttpResponse json(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

/// What is served here: one model, or a router's.
std::vector<ollama::ModelDetails> all_served(const Service& service, bool loaded_only) {
  std::vector<ollama::ModelDetails> out;
  const ModelPool* pool = service.pool();
  if (!pool) {
    if (!loaded_only || service.engine()) out.push_back(served(service));
    return out;
  }
  for (const auto& model : pool->models()) {
    if (!loaded_only || model.status == "loaded") out.push_back(served(*model.service));
  }
  return out;
}

void tags(Service& service, const std::shared_ptr<Exchange>& exchange) {
  auto models = all_served(service, false);
  std::set<std::string> names;
  for (const auto& model : models) names.insert(model.name);
  std::error_code error;
  const auto root = service.store();
  if (std::filesystem::is_directory(root, error)) {
    for (const auto& stored : list_models(root)) {
      if (service.serves(stored.reference) || names.contains(stored.reference)) continue;
      ollama::ModelDetails one;
      one.name = stored.reference;
      one.format = stored.path.extension() == ".gguf" ? "gguf" : "safetensors";
      one.size = static_cast<int64_t>(stored.bytes);
      one.modified_at = unix_text(stored.modified.value_or(0));
      one.digest =
          hex(sha256(fmt::format("{}\n{}\n{}", stored.reference, stored.bytes, stored.modified.value_or(0))));
      models.push_back(std::move(one));
    }
  }
  exchange->respond(json(ollama::print_tags(models)));
}

std::string named(const JsonNode& body) {
  auto name = body.string("model");
  if (!name) name = body.string("name");
  if (!name || name->empty()) fail_param("model", "model is required");
  return ollama::plain_model_name(*name);
}

std::string pull_line(const Downloads::News& news) {
  JsonWriter out;
  out.begin_object();
  if (!news.error.empty()) {
    out.field("error", news.error);
  } else if (news.file.empty()) {
    out.field("status", news.status);
  } else {
    const std::string digest = "sha256:" + hex(sha256(news.file));
    out.field("status", "pulling " + digest.substr(7, 12)).field("digest", digest).field("total", news.total);
    if (news.done > 0) out.field("completed", news.done);
  }
  out.end_object();
  return out.take();
}

void pull(const Router& router, Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = JsonNode::parse_request(exchange->request().body);
  const std::string name = named(body);
  if (body.boolean("insecure").value_or(false))
    fail_param("insecure", "insecure: models are fetched with their checksums only");
  const bool streams = body.boolean("stream").value_or(true);
  body.string("name");
  const auto ignored = body.unknown();
  const auto begun = std::make_shared<bool>(false);  // on the exchange's executor
  auto open = [exchange, streams, ignored, begun] {
    if (*begun || !streams) return;
    *begun = true;
    HttpResponse head;
    head.content_type = "application/x-ndjson";
    add_ignored_fields(head, ignored);
    exchange->open_stream(std::move(head), /*ping_seconds=*/-1);
  };
  service.downloads().start(
      service.store(), name, [exchange, streams, open, &service, &router](const Downloads::News& news) {
        if (news.last && news.error.empty() && service.pool()) service.pool()->rescan();
        exchange->post([exchange, streams, open, news, &router] {
          if (streams) {
            open();
            if (!exchange->streaming()) return;
            exchange->write(pull_line(news) + "\n");
            if (news.last) exchange->close_stream();
          } else if (news.last && !exchange->answered()) {
            if (news.error.empty()) return exchange->respond(json(R"({"status":"success"})"));
            exchange->respond(
                router.error_response({500, "server_error", news.error, std::nullopt}, exchange->request()));
          }
        });
      });
}

void erase(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = JsonNode::parse_request(exchange->request().body);
  const std::string name = named(body);
  if (ModelPool* pool = service.pool()) {
    for (const auto& model : pool->models()) {
      if (model.id != name) continue;
      if (!model.removable)
        refuse(400, "invalid_request_error", "model \"{}\" does not lie in the store", name);
      if (model.status != "unloaded") pool->unload(name);
    }
  } else if (service.serves(name)) {
    refuse(400, "invalid_request_error", "model \"{}\" is being served", name.substr(0, 200));
  }
  const auto stored = list_models(service.store());
  const bool here =
      std::any_of(stored.begin(), stored.end(), [&](const auto& m) { return m.reference == name; });
  if (!here) refuse(404, "not_found_error", "model \"{}\" not found", name.substr(0, 200));
  remove_model(parse_repository(name), service.store());
  if (ModelPool* pool = service.pool()) pool->rescan();
  HttpResponse out;
  exchange->respond(std::move(out));
}

void show(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = JsonNode::parse_request(exchange->request().body);
  const std::string name = named(body);
  body.boolean("verbose");
  const auto engine = service.engine_or_refuse();
  if (!service.serves(name)) {
    refuse_param(404, "not_found_error", "model", "model \"{}\" not found, try pulling it first",
                 name.substr(0, 200));
  }
  const ModelInfo& info = engine->info();
  ollama::ShownModel out;
  out.details = served(service);
  const auto sampling = service.sampling({});
  if (!info.encoder) {
    out.parameters = fmt::format("temperature {:g}\ntop_k {}\ntop_p {:g}", sampling.temperature,
                                 sampling.top_k, sampling.top_p);
  }
  if (service.chat_template()) out.chat_template = service.chat_template()->source();
  if (info.encoder) {
    out.capabilities = {"embedding"};
  } else {
    out.capabilities = {"completion"};
    if (service.chat_template()) out.capabilities.emplace_back("tools");
    if (out.chat_template.find("think") != std::string::npos) out.capabilities.emplace_back("thinking");
  }
  auto number = [](auto n) { return std::to_string(n); };
  out.info = {{"general.architecture", JsonWriter().value(info.family).take()},
              {"general.basename", JsonWriter().value(out.details.name).take()},
              {"general.parameter_count", number(info.parameters)},
              {info.family + ".block_count", number(info.layers)},
              {info.family + ".context_length",
               number(info.max_positions > 0 ? info.max_positions : engine->context())},
              {info.family + ".embedding_length", number(info.hidden)},
              {info.family + ".vocab_size", number(info.vocab_size)}};
  auto response = json(ollama::print_show(out));
  add_ignored_fields(response, body.unknown());
  exchange->respond(std::move(response));
}

}  // namespace

void add_ollama_model_routes(Router& router) {
  Service& service = router.service();
  router.add("GET", "/api/tags", [&service](const auto& exchange) { tags(service, exchange); });
  router.add("GET", "/api/ps", [&service](const auto& exchange) {
    const auto loaded = all_served(service, true);
    exchange->respond(json(ollama::print_ps(loaded)));
  });
  router.add("POST", "/api/pull",
             [&router, &service](const auto& exchange) { pull(router, service, exchange); });
  router.add("DELETE", "/api/delete", [&service](const auto& exchange) { erase(service, exchange); });
  router.add("POST", "/api/show", [&service](const auto& exchange) { show(service, exchange); });
  router.add("GET", "/api/version", [](const auto& exchange) {
    JsonWriter out;
    out.begin_object().field("version", kImitatedVersion).field("mlxcel", MLXCEL_VERSION).end_object();
    exchange->respond(json(out.take()));
  });
  for (const auto& [method, path] :
       {std::pair("POST", "/api/push"), std::pair("POST", "/api/create"), std::pair("POST", "/api/copy"),
        std::pair("POST", "/api/blobs/{digest}")}) {
    router.add(method, path,
               [](const auto&) { refuse(501, "not_supported_error", "not supported by mlxcel"); });
  }
}

}  // namespace mlxcel
