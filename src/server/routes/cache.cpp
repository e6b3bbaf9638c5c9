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
  out.field("snapshot_entries", s.snapshot_entries).field("snapshot_bytes", s.snapshot_bytes);
  out.field("snapshot_capacity_bytes", s.snapshot_capacity).field("snapshot_hits", s.snapshot_hits);
  out.field("snapshot_misses", s.snapshot_misses).field("snapshot_tokens_reused", s.snapshot_tokens_reused);
  out.field("snapshot_evictions", s.snapshot_evictions);
  out.field("snapshot_bytes_per_entry",
            s.snapshot_entries > 0 ? s.snapshot_bytes / static_cast<size_t>(s.snapshot_entries) : 0);
  out.field("snapshot_supersedes", s.snapshot_superseded);
  out.field("snapshot_self_evictions", s.snapshot_too_large);
}

void print_disk(JsonWriter& out, const EngineStats& s) {
  out.field("disk_enabled", s.disk).field("disk_entries", s.disk_entries).field("disk_bytes", s.disk_bytes);
  out.field("disk_capacity_bytes", s.disk_capacity).field("disk_hits", s.disk_hits);
  out.field("disk_misses", s.disk_misses).field("disk_corrupt", s.disk_corrupt);
  out.field("disk_evictions", s.disk_evictions).field("disk_writes", s.disk_writes);
}

void print_pool(JsonWriter& out, const EngineStats& s) {
  const auto live = static_cast<size_t>(s.pages_total - s.pages_free);
  out.field("pool_block_tokens", kPageTokens).field("pool_blocks_allocated", s.pages_total);
  out.field("pool_blocks_live", live).field("pool_blocks_free", s.pages_free);
  out.field("pool_bytes_reserved", s.pages_reserved).field("pool_bytes_in_use", live * s.page_bytes);
  out.field("pool_budget_bytes", static_cast<size_t>(s.pages_total) * s.page_bytes);
}

void stats(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.state() == Service::State::sleeping ? nullptr : service.engine_or_refuse();
  const EngineStats s = engine ? engine->stats() : EngineStats();
  JsonWriter out;
  out.begin_object().field("enabled", service.options().prompt_cache);
  out.field("entries", s.cache_entries).field("bytes", s.cache_bytes);
  out.field("capacity_bytes", s.cache_capacity);
  out.field("lookups", s.cache_hits + s.cache_misses).field("hits", s.cache_hits);
  out.field("misses", s.cache_misses).field("tokens_reused", s.cache_tokens_reused);
  out.field("evictions", s.cache_evictions).field("expired", s.cache_expired);
  out.field("kv_cache_mode_effective", engine ? engine->kv_label() : std::string());
  print_snapshots(out, s);
  print_disk(out, s);
  out.field("reject_too_short", s.cache_rejected_short);
  out.field("reject_model_owned_state", s.cache_rejected_state);
  out.field("reject_kv_mode_mismatch", 0);  // a cache lives and dies with one mode; on disk: a fingerprint
  out.field("reject_fingerprint", s.disk_foreign).field("reject_oversize", s.cache_rejected_large);
  print_pool(out, s);
  out.end_object();
  exchange->respond(json(out.take()));
}

void reset(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.engine_or_refuse();
  const auto& text = exchange->request().body;
  const bool disk = !text.empty() && JsonNode::parse_request(text).boolean("disk").value_or(false);
  const EngineStats before = engine->stats();
  engine->clear_prompt_cache(disk);
  JsonWriter out;
  out.begin_object().field("success", true);
  out.field("entries", before.cache_entries + (disk ? before.disk_entries : 0));
  out.field("bytes", before.cache_bytes + (disk ? before.disk_bytes : 0)).end_object();
  exchange->respond(json(out.take()));
}

}  // namespace

void add_cache_routes(Router& router) {
  Service& service = router.service();
  router.add("GET", "/v1/cache/stats", [&service](const auto& exchange) { stats(service, exchange); });
  router.add("POST", "/v1/cache/reset", [&service](const auto& exchange) { reset(service, exchange); });
}

}  // namespace mlxcel
