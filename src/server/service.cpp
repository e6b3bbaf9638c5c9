#include "server/service.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "api/error.h"
#include "base/log.h"
#include "hub/store.h"
#include "server/model_pool.h"

namespace mlxcel {
namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::optional<double> gguf_number(const GgufMetadata& metadata, std::string_view key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return std::visit(
      [](const auto& value) -> std::optional<double> {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t> ||
                      std::is_same_v<T, double>) {
          return static_cast<double>(value);
        } else {
          return std::nullopt;
        }
      },
      found->second.value);
}

void add_counters(EngineStats& to, const EngineStats& more) {
  using E = EngineStats;
  for (auto field : {&E::prompt_tokens,
                     &E::generated_tokens,
                     &E::requests,
                     &E::failed,
                     &E::cancelled,
                     &E::steps,
                     &E::prefill_steps,
                     &E::mixed_steps,
                     &E::preemptions,
                     &E::shifts,
                     &E::embedded_inputs,
                     &E::cache_hits,
                     &E::cache_misses,
                     &E::cache_tokens_reused,
                     &E::cache_evictions,
                     &E::cache_evicted_for_pages,
                     &E::cache_superseded,
                     &E::cache_rejected_short,
                     &E::cache_rejected_large,
                     &E::cache_rejected_state,
                     &E::snapshot_hits,
                     &E::snapshot_misses,
                     &E::snapshot_tokens_reused,
                     &E::snapshot_evictions,
                     &E::snapshot_superseded,
                     &E::snapshot_too_large,
                     &E::cache_expired,
                     &E::disk_evictions,
                     &E::disk_foreign,
                     &E::language_biased,
                     &E::language_suppressed,
                     &E::language_fragments,
                     &E::disk_hits,
                     &E::disk_misses,
                     &E::disk_corrupt,
                     &E::disk_writes,
                     &E::drafted,
                     &E::accepted,
                     &E::draft_rounds}) {
    to.*field += more.*field;
  }
  for (size_t i = 0; i < to.step_tokens.steps.size(); ++i)
    to.step_tokens.steps[i] += more.step_tokens.steps[i];
  to.step_tokens.tokens += more.step_tokens.tokens;
  for (size_t i = 0; i < DraftPlaces::kMost; ++i) {
    to.draft_places.tested[i] += more.draft_places.tested[i];
    to.draft_places.accepted[i] += more.draft_places.accepted[i];
  }
  for (auto field :
       {&EngineStats::prompt_seconds, &EngineStats::decode_seconds, &EngineStats::kernel_seconds})
    to.*field += more.*field;
}

/// Whether the first numbers of a model's vectors are vectors too (Matryoshka).
bool may_be_shortened(const Engine& engine) {
  const Config& config = engine.checkpoint().config;
  return config.has("matryoshka_dimensions") ||
         (config.has("is_matryoshka") && config.get("is_matryoshka", false));
}

}  // namespace

std::string random_id(const std::string& prefix) {
  static constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 generator{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }()};
  std::uniform_int_distribution<size_t> pick(0, alphabet.size() - 1);
  std::string out = prefix;
  for (int i = 0; i < 24; ++i) out += alphabet[pick(generator)];
  return out;
}

Service::Service(ServiceOptions options, Service* front)
    : options_(std::move(options)),
      front_(front),
      slots_(options_.parallel),
      responses_(options_.responses),
      conversations_(options_.conversations),
      thoughts_(options_.reasoning_echo_bytes),
      settings_(options_) {
  metrics_.start_unix = unix_seconds();
  if (!front_ && !options_.otlp_endpoint.empty())
    traces_ = std::make_unique<Traces>(options_.otlp_endpoint, "mlxcel");
}

void Service::ready(std::shared_ptr<Engine> engine) {
  auto chat_template = engine->chat_template();
  if (!options_.chat_template.empty()) {
    const auto& tokenizer = *engine->tokenizer();
    auto spelling = [&](std::optional<TokenId> id) { return id ? tokenizer.token_text(*id) : std::string(); };
    chat_template =
        ChatTemplate::from_text(options_.chat_template, spelling(tokenizer.bos()), spelling(tokenizer.eos()));
  }
  read_checkpoint_defaults(*engine);
  tune(*engine, true);
  {
    const std::lock_guard lock(mutex_);
    template_ = std::move(chat_template);
    vocabulary_ = {engine->tokenizer(), engine->info().vocab_size};
    entry_ = describe(*engine);
    engine_ = std::move(engine);
  }
  for (State from : {State::loading, State::sleeping}) {
    if (state_.compare_exchange_strong(from, State::ready)) break;
  }
}

// A fresh engine has what it was started with.
void Service::tune(Engine& engine, bool fresh) const {
  const auto now = live();
  if (engine.info().encoder) return;
  try {
    if (!fresh || now->step_token_budget != options_.step_token_budget)
      engine.set_step_token_budget(now->step_token_budget);
    if (!fresh || static_cast<size_t>(now->max_per_key) != options_.max_per_key)
      engine.set_max_per_key(static_cast<size_t>(now->max_per_key));
    if (!fresh || now->language_bias != options_.language_bias) engine.set_language_bias(now->language_bias);
  } catch (const Error& error) {
    log::warn("server", "{}: a setting was not taken: {}", options_.model_id, error.what());
  }
}

void Service::tune_engines() const {
  if (const auto own = engine()) tune(*own, false);
  if (!pool()) return;
  for (const auto& model : pool()->models())
    if (const auto loaded = model.service->engine()) model.service->tune(*loaded, false);
}

std::filesystem::path Service::store() const {
  return options_.store_root.empty() ? store_root() : std::filesystem::path(options_.store_root);
}

std::optional<EngineStats> Service::stats() const {
  const auto last = engine();
  const std::lock_guard lock(mutex_);
  if (!last) return carried_;
  EngineStats out = last->stats();
  if (carried_) add_counters(out, *carried_);
  return out;
}

void Service::suspend(bool asleep) {
  auto until_now = stats();
  if (until_now) {
    until_now->running = until_now->waiting = until_now->step_rows = 0;
    until_now->pages_free = until_now->pages_total = until_now->cache_entries = 0;
    until_now->cache_bytes = until_now->snapshot_bytes = until_now->memory_bytes = 0;
    until_now->snapshot_entries = 0;
    until_now->pages_reserved = 0;
    until_now->memory_active = until_now->memory_cache = 0;
  }
  std::shared_ptr<Engine> last;
  {
    const std::lock_guard lock(mutex_);
    carried_ = until_now;
    last.swap(engine_);
  }
  State from = State::ready;
  state_.compare_exchange_strong(from, asleep ? State::sleeping : State::loading);
}

bool Service::failed() const {
  const auto last = engine();
  return last && last->failure().has_value();
}

Service::Vocabulary Service::vocabulary() const {
  if (state() != State::sleeping) {
    const auto last = require();
    return {last->tokenizer(), last->info().vocab_size};
  }
  const std::lock_guard lock(mutex_);
  return vocabulary_;
}

void Service::read_checkpoint_defaults(const Engine& engine) {
  const Checkpoint& checkpoint = engine.checkpoint();
  // Config remembers what was read, so it is read here once and never by the routes.
  const Config& generation = checkpoint.generation_config;
  auto number = [&](std::string_view key, std::string_view gguf_key) -> std::optional<double> {
    if (!generation.empty() && generation.has(key)) return generation.get<float>(key);
    if (checkpoint.gguf) return gguf_number(*checkpoint.gguf, gguf_key);
    return std::nullopt;
  };
  auto in_range = [](const char* key, std::optional<double> value, double low, double high) {
    if (value && !(*value >= low && *value <= high)) {
      fail(ErrorKind::bad_checkpoint, "generation_config: {}: expected {} to {}, found {}", key, low, high,
           *value);
    }
    return value;
  };
  if (const auto t = in_range("temperature", number("temperature", "general.sampling.temp"), 0, 100)) {
    checkpoint_.temperature = static_cast<float>(*t);
  }
  if (const auto p = in_range("top_p", number("top_p", "general.sampling.top_p"), 0, 1)) {
    checkpoint_.top_p = static_cast<float>(*p);
  }
  if (const auto k = in_range("top_k", number("top_k", "general.sampling.top_k"), 0, 1e9)) {
    checkpoint_.top_k = static_cast<int>(*k);
  }
  if (!side_embedder_) matryoshka_ = may_be_shortened(engine);
}

void Service::set_sides(Side embedder, Side reranker) {
  if (embedder) matryoshka_ = may_be_shortened(*embedder.engine);
  side_embedder_ = std::move(embedder);
  side_reranker_ = std::move(reranker);
}

bool Service::can_truncate_vectors() const {
  return root().side_embedder_ ? root().matryoshka_ : matryoshka_;
}

bool Service::embeds_as(const std::string& model) const {
  return root().side_embedder_ ? model == root().side_embedder_.id : serves(model);
}

void Service::release() {
  std::shared_ptr<Engine> last;
  {
    const std::lock_guard lock(mutex_);
    last.swap(engine_);
    side_embedder_ = side_reranker_ = {};
  }
  state_ = State::stopped;
}

std::shared_ptr<Engine> Service::engine() const {
  const std::lock_guard lock(mutex_);
  return engine_;
}

void Service::require_open(bool asleep_too) const {
  switch (state()) {
    case State::sleeping:
      if (asleep_too) break;
      [[fallthrough]];
    case State::loading:
      refuse(503, "unavailable_error", "Loading model");
    case State::draining:
      refuse(503, "unavailable_error", "the server is shutting down");
    case State::stopped:
      refuse(503, "unavailable_error", "Engine stopped");
    case State::ready:
      break;
  }
}

std::shared_ptr<Engine> Service::require() const {
  require_open(false);
  auto out = engine();
  if (!out || out->failure()) refuse(503, "unavailable_error", "Engine stopped");
  return out;
}

std::shared_ptr<Engine> Service::generator() const {
  auto out = require();
  if (out->info().encoder) {
    refuse(501, "not_supported_error", "{} is {} model; it does not generate text", options_.model_id,
           reranks(*out) ? "a reranking" : "an embedding");
  }
  return out;
}

std::shared_ptr<Engine> Service::embedder() const {
  if (const Side& side = root().side_embedder_) {
    root().require_open(true);
    return side.engine;
  }
  auto out = require();
  if (!out->info().encoder || reranks(*out)) {
    refuse(501, "not_implemented", "{} is not an embedding model; serve one with -m or --embedding-model",
           options_.model_id);
  }
  return out;
}

std::shared_ptr<Engine> Service::reranker() const {
  if (const Side& side = root().side_reranker_) {
    root().require_open(true);
    return side.engine;
  }
  auto out = require();
  if (!reranks(*out)) {
    refuse(501, "not_implemented", "{} is not a reranking model; serve one with -m or --reranker-model",
           options_.model_id);
  }
  return out;
}

bool Service::reranks(const Engine& engine) const {
  return engine.info().labels > 0 || (engine.info().encoder && options_.reranking_only);
}

SamplingParams Service::sampling(const openai::SamplingFields& fields) const {
  const auto now = live();
  const SamplingFlags& flags = now->sampling;
  SamplingParams out;
  auto pick = [](auto request, auto flag, auto checkpoint, auto fallback) {
    if (request) return *request;
    if (flag) return *flag;
    return checkpoint ? *checkpoint : fallback;
  };
  const std::optional<float> none;
  const std::optional<int> no_count;
  out.temperature = pick(fields.temperature, flags.temperature, checkpoint_.temperature, 0.8f);
  out.top_k = pick(fields.top_k, flags.top_k, checkpoint_.top_k, 40);
  out.top_p = pick(fields.top_p, flags.top_p, checkpoint_.top_p, 0.95f);
  out.min_p = pick(fields.min_p, flags.min_p, none, 0.05f);
  out.repeat_penalty = pick(fields.repeat_penalty, flags.repeat_penalty, none, 1.0f);
  out.frequency_penalty = pick(fields.frequency_penalty, flags.frequency_penalty, none, 0.0f);
  out.presence_penalty = pick(fields.presence_penalty, flags.presence_penalty, none, 0.0f);
  out.repeat_last_n = pick(fields.repeat_last_n, flags.repeat_last_n, no_count, 64);
  out.min_keep = fields.min_keep.value_or(1);
  const SamplingParams usual;
  auto plain = [](const auto& request, const auto& flag, auto fallback) {
    return request ? *request : flag ? *flag : fallback;
  };
  out.typical_p = plain(fields.typical_p, flags.typical_p, usual.typical_p);
  out.top_n_sigma = plain(fields.top_n_sigma, flags.top_n_sigma, usual.top_n_sigma);
  out.xtc_probability = plain(fields.xtc_probability, flags.xtc_probability, usual.xtc_probability);
  out.xtc_threshold = plain(fields.xtc_threshold, flags.xtc_threshold, usual.xtc_threshold);
  out.dry_multiplier = plain(fields.dry_multiplier, flags.dry_multiplier, usual.dry_multiplier);
  out.dry_base = plain(fields.dry_base, flags.dry_base, usual.dry_base);
  out.dry_allowed_length =
      plain(fields.dry_allowed_length, flags.dry_allowed_length, usual.dry_allowed_length);
  out.dry_penalty_last_n =
      plain(fields.dry_penalty_last_n, flags.dry_penalty_last_n, usual.dry_penalty_last_n);
  out.dry_breakers = plain(fields.dry_breakers, flags.dry_breakers, usual.dry_breakers);
  for (const auto& ids : fields.dry_breaker_ids) {
    const Vocabulary words = vocabulary();
    if (*std::max_element(ids.begin(), ids.end()) >= words.size)
      fail_param("dry_sequence_breakers", "dry_sequence_breakers: expected token ids from 0 to {}",
                 words.size - 1);
    out.dry_breakers.push_back(words.tokenizer->decode(ids, /*skip_special=*/false));
  }
  out.dynatemp_range = plain(fields.dynatemp_range, flags.dynatemp_range, usual.dynatemp_range);
  out.dynatemp_exponent = plain(fields.dynatemp_exponent, flags.dynatemp_exponent, usual.dynatemp_exponent);
  out.mirostat = plain(fields.mirostat, flags.mirostat, usual.mirostat);
  out.mirostat_tau = plain(fields.mirostat_tau, flags.mirostat_tau, usual.mirostat_tau);
  out.mirostat_eta = plain(fields.mirostat_eta, flags.mirostat_eta, usual.mirostat_eta);
  out.adaptive_target = plain(fields.adaptive_target, flags.adaptive_target, usual.adaptive_target);
  out.adaptive_decay = plain(fields.adaptive_decay, flags.adaptive_decay, usual.adaptive_decay);
  out.samplers = plain(fields.samplers, flags.samplers, usual.samplers);
  out.post_sampling_probs = fields.post_sampling_probs;
  out.banned = flags.banned;
  out.logit_bias = flags.logit_bias;
  for (const auto& [token, bias] : fields.logit_bias) out.logit_bias[token] = bias;
  out.seed = fields.seed_given ? fields.seed : flags.seed;
  return out;
}

std::vector<std::string> Service::stops(const openai::SamplingFields& fields) const {
  auto out = fields.stop;
  out.insert(out.end(), options_.reverse_prompts.begin(), options_.reverse_prompts.end());
  return out;
}

openai::Bounds Service::bounds(const Engine& engine) const {
  openai::Bounds out;
  out.vocab_size = engine.info().vocab_size;
  out.max_choices = std::clamp(options_.max_rows, 1, 128);
  return out;
}

openai::Identity Service::identity(const char* prefix) const {
  openai::Identity out;
  out.id = random_id(prefix);
  out.created = unix_seconds();
  out.model = options_.model_id;
  out.fingerprint = fmt::format("mlxcel-{}", MLXCEL_VERSION);
  return out;
}

std::shared_ptr<std::atomic<bool>> Service::control_of(const std::string& id, const std::string& key) {
  if (front_) return front_->control_of(id, key);
  auto flag = std::make_shared<std::atomic<bool>>(false);
  const std::lock_guard lock(mutex_);
  std::erase_if(controls_, [](const auto& entry) { return entry.second.expired(); });
  controls_[{key, id}] = flag;
  return flag;
}

bool Service::end_thought(const std::string& id, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = controls_.find({key, id});
  const auto flag = found == controls_.end() ? nullptr : found->second.lock();
  if (flag) *flag = true;
  return flag != nullptr;
}

bool Service::serves(const std::string& model) const {
  const auto& aliases = options_.aliases;
  return model == options_.model_id || std::find(aliases.begin(), aliases.end(), model) != aliases.end();
}

openai::ModelEntry Service::entry() const {
  if (const auto model = engine()) return describe(*model);
  const std::lock_guard lock(mutex_);
  openai::ModelEntry out = entry_;
  out.id = options_.model_id;
  out.created = metrics_.start_unix;
  out.aliases = options_.aliases;
  out.tags = options_.tags;
  return out;
}

std::vector<openai::ModelEntry> Service::side_entries() const {
  std::vector<openai::ModelEntry> out;
  if (side_embedder_) out.push_back(describe_side(side_embedder_, "embedding"));
  if (side_reranker_) out.push_back(describe_side(side_reranker_, "rerank"));
  return out;
}

openai::ModelEntry Service::describe_side(const Side& side, const char* capability) const {
  openai::ModelEntry out = describe(*side.engine);
  out.id = side.id;
  out.aliases.clear();
  out.tags.clear();
  out.capabilities = {capability};
  return out;
}

openai::ModelEntry Service::describe(const Engine& engine) const {
  openai::ModelEntry out;
  out.id = options_.model_id;
  out.created = metrics_.start_unix;
  out.aliases = options_.aliases;
  out.tags = options_.tags;
  const ModelInfo& info = engine.info();
  out.capabilities = {reranks(engine) ? "rerank" : info.encoder ? "embedding" : "completion"};
  out.n_vocab = info.vocab_size;
  out.n_ctx_train = info.max_positions;
  out.n_ctx = engine.context();
  out.n_embd = info.hidden;
  out.n_params = info.parameters;
  out.size = static_cast<int64_t>(engine.checkpoint().file_bytes);
  out.format = engine.checkpoint().format == Checkpoint::Format::gguf ? "gguf" : "safetensors";
  out.family = info.family;
  out.quantization = info.weights_label;
  return out;
}

}  // namespace mlxcel
