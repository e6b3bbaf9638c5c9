// GET /v1/cache/stats, POST /v1/cache/reset: the prompt cache as it is, and emptied.
#include "api/json_node.h"
#include "api/json_writer.h"
#include "server/router.h"

namespace mlxcel {
namespace {

constexpr int kPageTokens = 32;  // of the pool

HttpResponse json(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

void print_snapshots(JsonWriter& out, const EngineStats& s) {
  out.field("snapshot_bytes", s.snapshot_bytes).field("snapshot_hits", s.snapshot_hits);
  out.field("snapshot_misses", s.snapshot_misses).field("snapshot_tokens_reused", s.snapshot_tokens_reused);
  out.field("snapshot_evictions", s.snapshot_evictions);
  out.field("snapshot_supersedes", s.snapshot_superseded);
}

void stats(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.state() == Service::State::sleeping ? nullptr : service.engine_or_refuse();
  const EngineStats s = engine ? engine->stats() : EngineStats();
  JsonWriter out;
  out.begin_object().field("enabled", service.options().prompt_cache);
  out.field("entries", s.cache_entries).field("bytes", s.cache_bytes);
  out.field("lookups", s.cache_hits + s.cache_misses).field("hits", s.cache_hits);
  out.field("misses", s.cache_misses).field("tokens_reused", s.cache_tokens_reused);
  out.field("evictions", s.cache_evictions);
  out.field("kv_cache_mode_effective", engine ? engine->kv_label() : std::string());
  print_snapshots(out, s);
  out.field("disk_hits", s.disk_hits).field("disk_misses", s.disk_misses);
  out.field("disk_corrupt", s.disk_corrupt).field("disk_writes", s.disk_writes);
  out.field("reject_too_short", s.cache_rejected_short);
  out.field("reject_model_owned_state", s.cache_rejected_state);
  out.field("reject_oversize", s.cache_rejected_large);
  out.field("pool_block_tokens", kPageTokens).field("pool_blocks_allocated", s.pages_total);
  out.field("pool_blocks_live", s.pages_total - s.pages_free).field("pool_blocks_free", s.pages_free);
  out.end_object();
  exchange->respond(json(out.take()));
}

void reset(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.engine_or_refuse();
  const auto& text = exchange->request().body;
  if (!text.empty() && JsonNode::parse_request(text).boolean("disk").value_or(false)) {
    fail_param("disk", "disk: what is kept on disk is not cleared here; remove the folder");
  }
  const EngineStats before = engine->stats();
  engine->clear_prompt_cache();
  JsonWriter out;
  out.begin_object().field("success", true).field("entries", before.cache_entries);
  out.field("bytes", before.cache_bytes).end_object();
  exchange->respond(json(out.take()));
}

}  // namespace

void add_cache_routes(Router& router) {
  Service& service = router.service();
  router.add("GET", "/v1/cache/stats", [&service](const auto& exchange) { stats(service, exchange); });
  router.add("POST", "/v1/cache/reset", [&service](const auto& exchange) { reset(service, exchange); });
}

}  // namespace mlxcel
