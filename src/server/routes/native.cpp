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
  const auto prompt = prepare_chat_prompt(service, *engine, request, exchange->request().key_label);
  JsonWriter out;
  out.begin_object().field("prompt", prompt.prompt.text).end_object();
  auto response = json(out.take());
  add_ignored_fields(response, request.ignored);
  exchange->respond(std::move(response));
}

/// Bits of a value in the mode that a label begins with.
int kv_bits(const std::string& label) {
  if (label.starts_with("turbo3")) return 3;
  if (label.starts_with("turbo4")) return 4;
  if (label.starts_with("int8")) return 8;
  return label.starts_with("f32") ? 32 : 16;
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
    out.field("kv_bits", kv_bits(engine->kv_label()));
    out.field("step_token_budget", engine->step_token_budget());
    out.field("max_token_gap", engine->max_token_gap_ms());
    out.field("prefill_chunk_size", options.prefill_chunk);
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
      .field("endpoint_slot_save", !options.slot_save_path.empty())
      .field("endpoint_props", options.props);
  out.field("endpoint_metrics", options.metrics)
      .field("ui", false)
      .key("ui_settings")
      .begin_object()
      .end_object();
  out.field("build_info", std::string("mlxcel ") + MLXCEL_VERSION)
      .field("is_sleeping", service.state() == Service::State::sleeping);
  out.field("cors_proxy_enabled", false).key("speculative");
  if (engine && !engine->draft_kind().empty())
    out.begin_object()
        .field("kind", engine->draft_kind())
        .field("label", engine->speculation_label())
        .end_object();
  else
    out.null();
  out.field("device", options.device).end_object();
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

// What drafts, whether blocks are exact, and whether drafts pay here.
void draft_policy(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto engine = service.engine();
  const DraftPolicyReport policy = engine ? engine->draft_policy() : DraftPolicyReport{};
  const bool drafts = policy.state != "unavailable";
  JsonWriter out;
  const auto text = [&](const char* key, const std::string& value) {
    if (value.empty())
      out.key(key).null();
    else
      out.field(key, value);
  };
  out.begin_object().field("schema_version", 1).field("state", policy.state);
  out.field("reason", engine ? policy.reason : "worker_not_ready");
  const bool exact = engine && engine->speculation_label().find("verify exact") != std::string::npos;
  text("verdict", !drafts ? "" : exact ? "exact" : "within tolerance");
  out.field("mtp_enabled", policy.enabled).field("target", service.options().model_id);
  text("drafter", policy.drafter);
  out.field("hardware", policy.hardware.empty() ? "Unknown-0c" : policy.hardware);
  if (policy.block_size > 0)
    out.field("block_size", policy.block_size);
  else
    out.key("block_size").null();
  const EngineStats stats = engine ? engine->stats() : EngineStats{};
  if (stats.drafted == 0)
    out.key("acceptance_rate").null();
  else
    out.field("acceptance_rate", policy.acceptance_rate);
  out.field("samples", policy.samples).field("samples_required", policy.samples_required);
  out.field("samples_remaining", std::max(0, policy.samples_required - policy.samples));
  text("decline_detail", policy.enabled ? "" : policy.detail);
  exchange->respond(json(out.end_object().take()));
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
  router.add("GET", "/lora-adapters", [&service](const auto& exchange) { adapters(service, exchange); });
  router.add("POST", "/lora-adapters",
             [&service](const auto& exchange) { scale_adapters(service, exchange); });
  router.add("GET", "/v1/internal/mtp-policy",
             [&service](const auto& exchange) { draft_policy(service, exchange); });
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
