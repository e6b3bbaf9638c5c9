// POST /v1/embeddings, /embedding, /api/embed, /api/embeddings.
#include <cmath>
#include <utility>

#include "api/llama/embedding.h"
#include "api/ollama/ollama.h"
#include "base/clock.h"
#include "server/embedding_job.h"

namespace mlxcel {
namespace {

void check_dimensions(const Service& service, const Engine& engine, int dimensions) {
  const int width = engine.info().hidden;
  if (dimensions == 0 || dimensions == width) return;
  if (!service.can_truncate_vectors()) {
    fail_param("dimensions", "dimensions: this model's vectors have {} and may not be shortened, found {}",
               width, dimensions);
  }
  if (dimensions > width)
    fail_param("dimensions", "dimensions: expected 1 to {}, found {}", width, dimensions);
}

Embeddings run(Engine& engine, const EmbeddingJob& wanted) {
  EmbedRequest job;
  for (size_t i = 0; i < wanted.inputs.size(); ++i) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&wanted.inputs[i])) {
      job.inputs.push_back(*ids);
    } else {
      job.inputs.push_back(
          engine.tokenizer()->encode(std::get<std::string>(wanted.inputs[i]), /*add_special=*/true));
    }
    if (job.inputs.back().empty()) fail_param(wanted.paths[i], "{}: the text has no tokens", wanted.paths[i]);
  }
  const bool own_norm = wanted.normalize && *wanted.normalize != 2;
  job.normalize = !own_norm;
  job.dimensions = wanted.dimensions;
  job.truncate = wanted.truncate;
  Embeddings out = engine.embed(job);
  for (auto& vector : out.vectors) {
    if (own_norm) openai::normalize_embedding(vector, *wanted.normalize);
    for (const float x : vector) {
      if (!std::isfinite(x)) fail(ErrorKind::internal, "the model's vector is not finite");
    }
  }
  return out;
}

void openai_embeddings(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const auto engine = service.embedder();
  auto request = openai::parse_embedding(exchange->request().body, engine->info().vocab_size);
  if (request.model && !service.embeds_as(*request.model)) {
    fail_param("model", "model: \"{}\" gives no vectors here; {} does", request.model->substr(0, 200),
               service.embedder_id());
  }
  EmbeddingJob job{
      std::move(request.inputs), std::move(request.paths), request.normalize, request.dimensions, true,
      std::move(request.ignored)};
  start_embedding(router, exchange, std::move(job),
                  [base64 = request.base64, id = service.embedder_id()](const Embeddings& out) {
                    return openai::print_embeddings(out.vectors, base64, id, out.prompt_tokens);
                  });
}

void native_embeddings(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  Service& service = router.service();
  const auto engine = service.embedder();
  auto request = llama::parse_embedding(exchange->request().body, engine->info().vocab_size);
  EmbeddingJob job{std::move(request.inputs), std::move(request.paths), request.normalize, 0, true,
                   std::move(request.ignored)};
  start_embedding(router, exchange, std::move(job),
                  [](const Embeddings& out) { return llama::print_embeddings(out.vectors); });
}

void ollama_embeddings(const Router& router, const std::shared_ptr<Exchange>& exchange, bool older) {
  Service& service = router.service();
  auto request = ollama::parse_embed(exchange->request().body, older);
  if (!service.embeds_as(ollama::plain_model_name(request.model))) {
    refuse_param(404, "not_found_error", "model", "model \"{}\" not found, try pulling it first",
                 request.model.substr(0, 200));
  }
  service.embedder();
  EmbeddingJob job;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    job.paths.push_back(older ? "prompt" : fmt::format("input[{}]", i));
    if (request.inputs[i].empty()) fail_param(job.paths.back(), "{}: the text is empty", job.paths.back());
    job.inputs.emplace_back(std::move(request.inputs[i]));
  }
  job.dimensions = request.dimensions;
  job.truncate = request.truncate;
  job.ignored = std::move(request.ignored);
  const auto started = Clock::now();
  if (job.inputs.empty()) {
    HttpResponse out;
    out.body = ollama::print_embed(request.model, {}, {}, false);
    exchange->respond(std::move(out));
    return;
  }
  start_embedding(router, exchange, std::move(job),
                  [model = request.model, older, started](const Embeddings& out) {
                    ollama::Figures figures;
                    figures.total = static_cast<int64_t>(milliseconds_between(started, Clock::now()) * 1e6);
                    figures.prompt_count = out.prompt_tokens;
                    return ollama::print_embed(model, out.vectors, figures, older);
                  });
}

}  // namespace

void limit_wait(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  const double seconds = router.service().options().embedding_seconds;
  exchange->watch_progress(seconds, [&router, seconds, weak = std::weak_ptr(exchange)] {
    const auto waiting = weak.lock();
    if (!waiting || waiting->answered()) return;
    const ApiError error{504, "server_timeout", fmt::format("no answer came in {:g} seconds", seconds),
                         std::nullopt};
    waiting->respond(router.error_response(error, waiting->request()));
  });
}

void start_embedding(const Router& router, const std::shared_ptr<Exchange>& exchange, EmbeddingJob job,
                     std::function<std::string(const Embeddings&)> print) {
  auto engine = router.service().embedder();
  check_dimensions(router.service(), *engine, job.dimensions);
  if (!job.normalize) job.normalize = router.service().options().embd_normalize;
  auto work = [&router, exchange, engine = std::move(engine), job = std::move(job),
               print = std::move(print)]() mutable {
    HttpResponse out;
    try {
      out.body = print(run(*engine, job));
      add_ignored_fields(out, job.ignored);
    } catch (...) {
      out = router.error_response(router.error_in_flight(), exchange->request());
    }
    engine.reset();
    exchange->post([exchange, out = std::move(out)]() mutable {
      if (!exchange->answered()) exchange->respond(std::move(out));
    });
  };
  if (!exchange->run_blocking(std::move(work))) refuse(503, "server_busy", "All slots are busy");
  limit_wait(router, exchange);
}

void add_embedding_routes(Router& router) {
  router.add("POST", "/v1/embeddings",
             [&router](const auto& exchange) { openai_embeddings(router, exchange); });
  for (const char* path : {"/embedding", "/embeddings"}) {
    router.add("POST", path, [&router](const auto& exchange) { native_embeddings(router, exchange); });
  }
  router.add("POST", "/api/embed",
             [&router](const auto& exchange) { ollama_embeddings(router, exchange, false); });
  router.add("POST", "/api/embeddings",
             [&router](const auto& exchange) { ollama_embeddings(router, exchange, true); });
}

}  // namespace mlxcel
