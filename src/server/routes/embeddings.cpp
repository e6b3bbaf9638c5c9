// POST /v1/embeddings: texts to vectors, off the connection's executor since the engine's answer is waited for.
#include "api/openai/embedding.h"

#include <cmath>

#include "server/router.h"

namespace mlxcel {
namespace {

void check_dimensions(const Service& service, const Engine& engine, int dimensions) {
  const int width = engine.info().hidden;
  if (dimensions == 0 || dimensions == width) return;
  if (!service.can_truncate_vectors()) {
    fail_param("dimensions", "dimensions: this model's vectors have {} and may not be shortened, found {}", width,
               dimensions);
  }
  if (dimensions > width) fail_param("dimensions", "dimensions: expected 1 to {}, found {}", width, dimensions);
}

std::string answer(const Service& service, Engine& engine, const openai::EmbeddingRequest& request) {
  EmbedRequest job;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.inputs[i])) {
      job.inputs.push_back(*ids);
    } else {
      job.inputs.push_back(engine.tokenizer()->encode(std::get<std::string>(request.inputs[i]), /*add_special=*/true));
    }
    if (job.inputs.back().empty()) fail_param(request.paths[i], "{}: the text has no tokens", request.paths[i]);
  }
  const bool own_norm = request.normalize && *request.normalize != 2;
  job.normalize = !own_norm;
  job.dimensions = request.dimensions;
  job.truncate = true;
  Embeddings out = engine.embed(job);
  for (auto& vector : out.vectors) {
    if (own_norm) openai::normalize_embedding(vector, *request.normalize);
    for (const float x : vector) {
      if (!std::isfinite(x)) fail(ErrorKind::internal, "the model's vector is not finite");
    }
  }
  return openai::print_embeddings(out.vectors, request.base64, service.options().model_id, out.prompt_tokens);
}

void embeddings(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  auto engine = service.embedder();
  auto request = openai::parse_embedding(exchange->request().body, engine->info().vocab_size);
  if (request.model && !service.serves(*request.model)) {
    fail_param("model", "model: \"{}\" is not served here; this is {}", request.model->substr(0, 200),
               service.options().model_id);
  }
  check_dimensions(service, *engine, request.dimensions);
  auto work = [&router, exchange, engine = std::move(engine), request = std::move(request)]() mutable {
    HttpResponse out;
    try {
      out.body = answer(router.service(), *engine, request);
      add_ignored_fields(out, request.ignored);
    } catch (...) {
      out = router.error_response(router.error_in_flight());
    }
    engine.reset();
    exchange->post([exchange, out = std::move(out)]() mutable { exchange->respond(std::move(out)); });
  };
  if (!exchange->run_blocking(std::move(work))) refuse(503, "server_busy", "All slots are busy");
}

}  // namespace

void add_embedding_routes(Router& router) {
  router.add("POST", "/v1/embeddings", [&router](const auto& exchange) { embeddings(router, exchange); });
}

}  // namespace mlxcel
