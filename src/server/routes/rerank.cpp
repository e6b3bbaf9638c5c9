// POST /v1/rerank and its other names: documents by their relevance to a query.
#include <cmath>

#include "api/llama/rerank.h"
#include "engine/front/rerank.h"
#include "server/embedding_job.h"
#include "server/router.h"

namespace mlxcel {
namespace {

void rerank(const Router& router, const std::shared_ptr<Exchange>& exchange) {
  auto request = llama::parse_rerank(exchange->request().body);
  auto engine = router.service().reranker();
  auto work = [&router, exchange, engine = std::move(engine), request = std::move(request)]() mutable {
    HttpResponse out;
    try {
      const Scores found =
          engine->score(rerank_request(*engine, request.query, request.documents, request.instruction));
      std::vector<double> scores;
      for (const auto& each : found.scores) {
        scores.push_back(relevance(each));
        if (!std::isfinite(scores.back()))
          fail(ErrorKind::internal, "a score of document {} is not finite", scores.size() - 1);
      }
      out.body = llama::print_rerank(request, scores, found.prompt_tokens, router.service().reranker_id());
      add_ignored_fields(out, request.ignored);
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

}  // namespace

void add_rerank_routes(Router& router) {
  for (const char* path : {"/v1/rerank", "/v1/reranking", "/rerank", "/reranking"}) {
    router.add("POST", path, [&router](const auto& exchange) { rerank(router, exchange); });
  }
}

}  // namespace mlxcel
