// llama-server's utilities: tokens to text and back, templates, what is loaded and what runs; and routes that
// say why they are not served.
#include <algorithm>

#include "api/json_node.h"
#include "api/llama/completion.h"
#include "api/openai/chat.h"
#include "base/log.h"
#include "server/chat_job.h"
#include "server/model_pool.h"

namespace mlxcel {
namespace {

HttpResponse json(std::string body) {
  HttpResponse out;
  out.body = std::move(body);
  return out;
}

void tokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto vocabulary = service.vocabulary();
  const auto request = llama::parse_tokenize(exchange->request().body, vocabulary.size);
  const auto tokens =
      llama::encode_mixed(*vocabulary.tokenizer, request.content, request.add_special, request.parse_special);
  exchange->respond(json(llama::print_tokens(*vocabulary.tokenizer, tokens, request.with_pieces)));
}

void detokenize(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto vocabulary = service.vocabulary();
  const auto tokens = llama::parse_detokenize(exchange->request().body, vocabulary.size);
  JsonWriter out;
  out.begin_object()
      .field("content", vocabulary.tokenizer->decode(tokens, /*skip_special=*/false))
      .end_object();
  exchange->respond(json(out.take()));
}

void apply_template(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.generator();
  const auto request = openai::parse_chat(exchange->request().body, service.bounds(*engine));
  const auto prompt = prepare_chat_prompt(service, *engine, request);
  JsonWriter out;
  out.begin_object().field("prompt", prompt.prompt.text).end_object();
  auto response = json(out.take());
  add_ignored_fields(response, request.ignored);
  exchange->respond(std::move(response));
}

void props(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const ServiceOptions& options = service.options();
  const auto engine = service.engine();
  JsonWriter out;
  out.begin_object();
  if (const ModelPool* pool = service.pool()) {
    out.field("role", "router").field("max_instances", pool->options().max_loaded);
    out.field("models_autoload", pool->options().autoload);
  }
  if (engine) {
    const ModelInfo& info = engine->info();
    const Tokenizer* tokenizer = engine->tokenizer().get();
    llama::Settings settings;
    settings.sampling = service.sampling({});
    settings.seed = settings.sampling.seed.value_or(UINT32_MAX);
    settings.n_predict = options.predict;
    settings.stop = options.reverse_prompts;
    settings.kv_mode = engine->kv_label();
    for (const AdapterInfo& one : engine->adapters()) settings.adapters.emplace_back(one.id, one.scale);
    out.key("default_generation_settings").begin_object().key("params");
    llama::print_settings(out, settings);
    out.field("n_ctx", engine->context()).end_object();
    out.field("model_ftype", info.weights_label).field("kv_cache_mode", engine->kv_label());
    out.field("step_token_budget", engine->step_token_budget());
    out.key("capabilities").begin_array().value(info.encoder ? "embedding" : "completion").end_array();
    out.key("geometry")
        .begin_object()
        .field("family", info.family)
        .field("layers", info.layers)
        .field("hidden", info.hidden);
    out.field("vocab", info.vocab_size).field("max_positions", info.max_positions).end_object();
    auto token = [&](const char* name, std::optional<TokenId> id) {
      out.field(name, tokenizer && id ? tokenizer->token_text(*id) : std::string());
    };
    token("bos_token", tokenizer ? tokenizer->bos() : std::nullopt);
    token("eos_token", tokenizer ? tokenizer->eos() : std::nullopt);
    const auto& chat_template = service.chat_template();
    const std::string source = chat_template ? chat_template->source() : std::string();
    out.field("chat_template", source);
    const auto format = reply_format(source);
    out.key("chat_template_caps").begin_object().field("supports_tools", format->native_tools);
    out.field("supports_tool_calls", true).field("supports_parallel_tool_calls", true);
    out.field("supports_system_role", true).field("tool_call_format", format->name).end_object();
  }
  out.field("total_slots", options.parallel)
      .field("model_alias", options.model_id)
      .field("model_path", options.model_path);
  out.key("modalities")
      .begin_object()
      .field("vision", false)
      .field("audio", false)
      .field("video", false)
      .end_object();
  out.field("media_marker", "<__media__>")
      .field("endpoint_slots", options.slots)
      .field("endpoint_props", options.props);
  out.field("endpoint_metrics", options.metrics)
      .field("ui", false)
      .key("ui_settings")
      .begin_object()
      .end_object();
  out.field("build_info", std::string("mlxcel ") + MLXCEL_VERSION)
      .field("is_sleeping", service.state() == Service::State::sleeping);
  out.field("cors_proxy_enabled", false).key("speculative").null();
  out.field("device", options.device).end_object();
  exchange->respond(json(out.take()));
}

void slots(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (!service.options().slots)
    refuse(501, "not_supported_error", "slots are not shown; start the server without --no-slots");
  const auto engine = service.state() == Service::State::sleeping ? nullptr : service.engine_or_refuse();
  const auto window = service.entry().n_ctx;
  const auto all = service.slots().all();
  const bool full = std::all_of(all.begin(), all.end(), [](const auto& slot) { return slot.busy; });
  if (full && exchange->request().query.find("fail_on_no_slot=1") != std::string::npos) {
    refuse(503, "server_busy", "no slot available");
  }
  JsonWriter out;
  out.begin_array();
  for (size_t i = 0; i < all.size(); ++i) {
    const SlotState& slot = all[i];
    out.begin_object().field("id", i).field("id_task",
                                            slot.busy ? static_cast<int64_t>(slot.task) : int64_t{-1});
    out.field("n_ctx", window).field("speculative", false).field("is_processing", slot.busy);
    if (slot.busy) {
      out.field("n_prompt_tokens", slot.prompt_tokens)
          .field("n_prompt_tokens_processed", slot.prompt_tokens - slot.cached_tokens);
      out.field("n_prompt_tokens_cache", slot.cached_tokens).key("params");
      llama::Settings settings;
      settings.sampling = slot.params;
      settings.seed = slot.params.seed.value_or(UINT32_MAX);
      settings.n_predict = slot.max_tokens;
      if (engine) settings.kv_mode = engine->kv_label();
      llama::print_settings(out, settings);
      out.key("next_token")
          .begin_array()
          .begin_object()
          .field("has_next_token", true)
          .field("n_decoded", slot.generated);
      out.field("n_remain", slot.max_tokens < 0 ? -1 : slot.max_tokens - slot.generated)
          .end_object()
          .end_array();
    }
    out.end_object();
  }
  out.end_array();
  exchange->respond(json(out.take()));
}

void cache_stats(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.state() == Service::State::sleeping ? nullptr : service.engine_or_refuse();
  const EngineStats s = engine ? engine->stats() : EngineStats();
  JsonWriter out;
  out.begin_object()
      .field("enabled", service.options().prompt_cache)
      .field("entries", s.cache_entries)
      .field("bytes", s.cache_bytes);
  out.field("lookups", s.cache_hits + s.cache_misses)
      .field("hits", s.cache_hits)
      .field("misses", s.cache_misses);
  out.field("tokens_reused", s.cache_tokens_reused).field("evictions", s.cache_evictions);
  out.field("kv_cache_mode_effective", engine ? engine->kv_label() : std::string())
      .field("disk_hits", s.disk_hits)
      .field("disk_misses", s.disk_misses);
  out.field("disk_corrupt", s.disk_corrupt)
      .field("pool_block_tokens", 32)
      .field("pool_blocks_allocated", s.pages_total);
  out.field("pool_blocks_live", s.pages_total - s.pages_free)
      .field("pool_blocks_free", s.pages_free)
      .end_object();
  exchange->respond(json(out.take()));
}

void cache_reset(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.engine_or_refuse();
  const auto& text = exchange->request().body;
  if (!text.empty() && JsonNode::parse_request(text).boolean("disk").value_or(false)) {
    fail_param("disk", "disk: what is kept on disk is not cleared here; remove the folder");
  }
  const EngineStats before = engine->stats();
  engine->clear_prompt_cache();
  JsonWriter out;
  out.begin_object()
      .field("success", true)
      .field("entries", before.cache_entries)
      .field("bytes", before.cache_bytes)
      .end_object();
  exchange->respond(json(out.take()));
}

void refuse_route(Router& router, const char* method, const char* path, int status, const char* type,
                  const char* text) {
  router.add(method, path,
             [status, type, text](const auto&) { throw Refusal({status, type, text, std::nullopt}); });
}

void adapters(Service& service, const std::shared_ptr<Exchange>& exchange) {
  JsonWriter out;
  out.begin_array();
  for (const AdapterInfo& one : service.engine_or_refuse()->adapters())
    out.begin_object()
        .field("id", one.id)
        .field("path", one.path)
        .field("scale", one.scale)
        .field("task_name", "")
        .field("prompt_prefix", "")
        .end_object();
  out.end_array();
  exchange->respond(json(out.take()));
}

void scale_adapters(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.engine_or_refuse();
  if (engine->adapters_fused())
    refuse(501, "not_supported_error", "adapters are fused into the weights (--lora-fuse): scales are fixed");
  std::vector<AdapterScale> scales;
  for (const auto& [id, scale] : openai::parse_adapter_list(JsonNode::parse(exchange->request().body)))
    scales.push_back({id, scale});
  for (const int id : engine->set_adapter_scales(scales))
    log::warn("server", "/lora-adapters: adapter {} is not loaded: ignored", id);
  exchange->respond(json(R"({"success":true})"));
}

// What drafts, whether blocks are exact, and how it fares. Drafting here is always asked for, and a row whose drafts
// do not pay goes on without them by itself.
void draft_policy(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.engine();
  const std::string kind = engine ? engine->draft_kind() : "";
  const EngineStats stats = engine ? engine->stats() : EngineStats{};
  JsonWriter out;
  out.begin_object().field("schema_version", 1);
  out.field("state", kind.empty() ? "unavailable" : "forced");
  out.field("reason", !engine ? "worker_not_ready" : kind.empty() ? "no_mtp_dispatch" : "asked_for");
  if (const std::string label = engine ? engine->speculation_label() : ""; !kind.empty())
    out.field("verdict", label.ends_with("verify exact") ? "exact" : "within tolerance");
  else
    out.key("verdict").null();
  out.field("mtp_enabled", !kind.empty()).field("target", service.options().model_id);
  if (kind.empty())
    out.key("drafter").null();
  else
    out.field("drafter", kind);
  out.field("hardware", "Unknown-0c").key("block_size").null();
  if (stats.drafted == 0)
    out.key("acceptance_rate").null();
  else
    out.field("acceptance_rate", static_cast<double>(stats.accepted) / static_cast<double>(stats.drafted));
  out.field("samples", stats.draft_rounds).field("samples_required", 4);
  out.field("samples_remaining", stats.draft_rounds < 4 ? 4 - static_cast<int>(stats.draft_rounds) : 0);
  out.key("decline_detail").null().end_object();
  exchange->respond(json(out.take()));
}

}  // namespace

void add_native_routes(Router& router) {
  Service& service = router.service();
  router.add("POST", "/tokenize", [&service](const auto& exchange) { tokenize(service, exchange); });
  router.add("POST", "/detokenize", [&service](const auto& exchange) { detokenize(service, exchange); });
  router.add("POST", "/apply-template",
             [&service](const auto& exchange) { apply_template(service, exchange); });
  router.add("GET", "/props", [&service](const auto& exchange) { props(service, exchange); });
  router.add("POST", "/props", [&service](const auto& exchange) {
    if (!service.options().props)
      refuse(501, "not_supported_error", "POST /props is off; start the server with --props");
    JsonNode::parse_request(exchange->request().body);
    exchange->respond(json(R"({"success":true})"));
  });
  router.add("GET", "/v1/cache/stats", [&service](const auto& exchange) { cache_stats(service, exchange); });
  router.add("POST", "/v1/cache/reset", [&service](const auto& exchange) { cache_reset(service, exchange); });
  router.add("GET", "/slots", [&service](const auto& exchange) { slots(service, exchange); });
  router.add("GET", "/lora-adapters", [&service](const auto& exchange) { adapters(service, exchange); });
  router.add("POST", "/lora-adapters", [&service](const auto& exchange) { scale_adapters(service, exchange); });
  router.add("GET", "/v1/internal/mtp-policy",
             [&service](const auto& exchange) { draft_policy(service, exchange); });
  refuse_route(router, "POST", "/slots/{id}", 501, "not_supported_error",
               "slots are neither saved nor restored yet");
  for (const char* method : {"GET", "POST"}) {
    refuse_route(router, method, "/tools", 403, "feature_disabled", "this server runs no tools");
    refuse_route(router, method, "/cors-proxy", 403, "feature_disabled",
                 "this server fetches nothing for a browser");
  }
  for (const char* path : {"/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations",
                           "/audio/speech", "/audio/transcriptions", "/audio/translations"}) {
    refuse_route(router, "POST", path, 501, "not_implemented", "no audio model is loaded");
  }
  refuse_route(router, "GET", "/v1/realtime", 501, "not_implemented", "no voice model is loaded");
  refuse_route(router, "GET", "/router/stats", 501, "not_supported_error",
               "this server is not the front of a cluster");
}

}  // namespace mlxcel
