#include "engine/loop/loop.h"

#include <mlx/memory.h>
#include <mlx/transforms.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/memory.h"
#include "engine/loop/pattern.h"
#include "kernels/primitive.h"
#include "state/kv_mode.h"
#include "state/recent.h"
#include "state/step.h"

namespace mlxcel {
namespace {

constexpr int kMaxParallel = 1024;
constexpr int kUnboundedContext = 1 << 20;       // the window of models that have none of their own
constexpr size_t kCacheBytes = size_t{2} << 30;  // kept prefixes, where nothing is said about them
constexpr size_t kLeastCacheBytes = size_t{64} << 20;
constexpr int kEmbedTokens = 2048;  // tokens of one step of embedding inputs, when prefill_chunk is 0

EngineOptions checked(EngineOptions o) {
  if (!o.language_bias.languages.empty()) check(o.language_bias);
  o.progress = nullptr;  // belongs to the load, whose caller may be gone
  if (o.parallel < 1 || o.parallel > kMaxParallel)
    fail_param("parallel", "parallel: expected 1 to {} sequences, found {}", kMaxParallel, o.parallel);
  if (o.context < 0) fail_param("ctx-size", "ctx-size: expected 0 or more tokens, found {}", o.context);
  if (o.max_kv_size < 0)
    fail_param("max-kv-size", "max-kv-size: expected 0 (no bound) or more tokens, found {}", o.max_kv_size);
  if (o.prefill_chunk < 0)
    fail_param("prefill-chunk-size", "prefill-chunk-size: expected 0 or more tokens, found {}",
               o.prefill_chunk);
  if (o.step_token_budget != 0 && o.step_token_budget < o.parallel)
    fail_param("step-token-budget",
               "step-token-budget: expected at least one token for each of {} sequences, found {}",
               o.parallel, o.step_token_budget);
  if (o.max_batch < 0 || o.max_batch > o.parallel)
    fail_param("max-batch-size", "max-batch-size: expected 0 (all) to {}, the sequences there are, found {}",
               o.parallel, o.max_batch);
  if (o.max_prefill_rows < 1)
    fail_param("max-batch-prefill", "max-batch-prefill: expected 1 or more prompts, found {}",
               o.max_prefill_rows);
  if (o.max_prefill_tokens < 0)
    fail_param("max-batch-prefill-tokens",
               "max-batch-prefill-tokens: expected 0 (no bound) or more tokens, found {}",
               o.max_prefill_tokens);
  if (const auto& b = o.prompt_cache_bounds; b.min_prefix < 1 || !(b.ttl_s >= 0) || !(b.snapshot_ttl_s >= 0))
    fail_param("prompt-cache-min-prefix",
               "prompt-cache-min-prefix, -ttl, -snapshot-ttl: expected 1 or more tokens and 0 or more "
               "seconds, found {}, {} and {}",
               b.min_prefix, b.ttl_s, b.snapshot_ttl_s);
  if (o.max_token_gap_ms < 1)
    fail_param("max-token-gap", "max-token-gap: expected 1 ms or more, found {}", o.max_token_gap_ms);
  if (o.prefill_interval < 1)
    fail_param("prefill-grant-interval", "prefill-grant-interval: expected 1 or more steps, found {}",
               o.prefill_interval);
  if (!(o.kv_watermark >= 0.0 && o.kv_watermark <= 0.5))
    fail_param("kv-admission-watermark", "kv-admission-watermark: expected 0.0 to 0.5, found {}",
               o.kv_watermark);
  if (o.draft_tokens < 0 || o.draft_tokens > DraftWidth::kMost)
    fail_param("draft", "draft: expected 0 (as many as pay) to {} tokens, found {}", DraftWidth::kMost,
               o.draft_tokens);
  if (o.prompt_lookup_max_batch < 1)
    fail_param("prompt-lookup-max-batch", "prompt-lookup-max-batch: expected 1 or more, found {}",
               o.prompt_lookup_max_batch);
  if (!(o.draft_p_min >= 0.0f && o.draft_p_min <= 1.0f))
    fail_param("draft-p-min", "draft-p-min: expected 0 to 1, found {}", o.draft_p_min);
  if ((o.make_drafter ? 1 : 0) + (o.side_drafter ? 1 : 0) + (o.prompt_lookup ? 1 : 0) +
          (o.internal_mtp ? 1 : 0) >
      1)
    fail_param("draft-kind", "draft-kind: a draft model, prompt lookup and internal-mtp exclude each other");
  parse_kv_mode(o.kv_cache_mode);
  if (const char* text = std::getenv("MLXCEL_MEMORY_LIMIT");
      o.memory_limit == 0 && text != nullptr && *text != '\0')
    o.memory_limit = parse_bytes(text).value_or(0);  // available_memory() says what is wrong with it
  return o;
}

bool counts_language_from_environment() {
  const char* text = std::getenv("MLXCEL_LANG_BIAS_COUNTERS");
  if (text == nullptr) return false;
  for (const char* yes : {"1", "true", "yes", "on"})
    if (strcasecmp(text, yes) == 0) return true;
  return false;
}

/// The type of keys and values that are not coded.
mx::Dtype kv_dtype(const Checkpoint& checkpoint, const ModelInfo& info) {
  if (checkpoint.format == Checkpoint::Format::gguf) return mx::float16;
  if (info.checkpoint_dtype == mx::bfloat16) return mx::bfloat16;
  return info.checkpoint_dtype == mx::float32 ? mx::float32 : mx::float16;
}

}  // namespace

Loop::Loop(const EngineOptions& options, std::vector<TokenId> eos)
    : options_(checked(options)),
      max_per_key_(options.max_per_key),
      eos_(std::move(eos)),
      fail_step_(FailStep::from_environment()),
      loops_(loop_detection_from_environment()),
      pace_(options.step_token_budget, options.max_token_gap_ms),
      counts_language_(counts_language_from_environment()),
      slots_(options_.parallel),
      inbox_({.parallel = static_cast<size_t>(options_.parallel),
              .queue = options_.max_queue,
              .keys = options_.keys}) {}

Loop::~Loop() = default;

void Loop::open(std::unique_ptr<Model> model, const Checkpoint& checkpoint, const Tokenizer* tokenizer) {
  model_ = std::move(model);
  tokenizer_ = tokenizer;
  info_ = model_->info();
  info_.diffusion = tuned(info_.diffusion, checkpoint);
  check_denoising(options_.denoising);
  warnings_ = checkpoint.warnings;
  warnings_.insert(warnings_.end(), info_.warnings.begin(), info_.warnings.end());
  if (info_.encoder) {
    embedding_ = read_embedding_setup(checkpoint, tokenizer, info_, options_.pooling, options_.context);
    context_ = embedding_.max_input;
    kv_label_ = "none: an encoder keeps no keys and values";
    if (asks_for_drafts(options_))
      fail(ErrorKind::unsupported, "speculation: {} is an encoder, it generates nothing", info_.model_type);
    embedder_ = std::make_unique<Embedder>(
        *model_, options_.prefill_chunk > 0 ? options_.prefill_chunk : kEmbedTokens, embedding_.dense);
  } else {
    if (!options_.pooling.empty())
      fail(ErrorKind::unsupported, "pooling {}: {} generates text; only encoders give embeddings here",
           options_.pooling, info_.model_type);
    if (info_.diffusion.block > 0 && asks_for_drafts(options_))
      fail(ErrorKind::unsupported, "{} fills in blocks of tokens together: drafts have no meaning for it",
           info_.model_type);
    make_store(checkpoint);
    make_drafter(checkpoint);
  }
  if (options_.warmup) warm_up();
  publish();
}

void Loop::make_store(const Checkpoint& checkpoint) {
  const int own = info_.max_positions > 0 ? info_.max_positions : kUnboundedContext;
  if (options_.context > own)
    fail_param("ctx-size", "ctx-size: a window of {} tokens is over the model's own {}", options_.context,
               own);
  context_ = options_.context > 0 ? options_.context : own;
  if (options_.max_kv_size > 0) context_ = std::min(context_, options_.max_kv_size);

  const StateLayout& layout = model_->layout();
  const mx::Dtype dtype = kv_dtype(checkpoint, info_);
  KvPlan kv = plan_kv(layout,
                      {.mode = parse_kv_mode(options_.kv_cache_mode),
                       .boundary_values = options_.kv_boundary_values,
                       .skip_last_layer = options_.kv_skip_last_layer},
                      dtype, info_.layers, info_.model_type);
  kv_label_ = kv.label;
  kv_formats_ = kv.formats;
  for (const int keys : kv.recent) recent_label_ += fmt::format(" {}", keys);
  const size_t token_bytes = layout.kv_bytes_per_token(kv.formats);
  const auto pages = [](int tokens) { return (static_cast<size_t>(tokens) + kPageTokens - 1) / kPageTokens; };
  size_t tokens = pages(context_) * kPageTokens * static_cast<size_t>(options_.parallel);
  const PromptCacheBounds& bounds = options_.prompt_cache_bounds;
  size_t budget = options_.prompt_cache_bytes > 0
                      ? options_.prompt_cache_bytes
                      : std::min(kCacheBytes, std::max(available_memory() / 4, kLeastCacheBytes));
  work_.page_bytes = token_bytes * kPageTokens;
  if (bounds.pages > 0 && token_bytes > 0 && bounds.pages < budget / work_.page_bytes)
    budget = bounds.pages * work_.page_bytes;
  if (token_bytes > 0) {
    // Pages take memory when they are first used, so half of what is free now is a bound, not a claim.
    const size_t memory = available_memory();
    size_t share = memory / 2;
    if (options_.kv_budget_bytes > 0)
      share = memory == 0 ? options_.kv_budget_bytes : std::min(share, options_.kv_budget_bytes);
    size_t room = share == 0 ? tokens : share / token_bytes / kPageTokens * kPageTokens;
    if (options_.max_kv_tokens > 0) room = std::min(room, options_.max_kv_tokens / kPageTokens * kPageTokens);
    if (room < pages(context_) * kPageTokens) {
      if (options_.context > 0 || room < kPageTokens)
        fail(ErrorKind::out_of_memory,
             "a window of {} tokens takes {} of keys and values; {} are available for them", context_,
             format_bytes(static_cast<size_t>(context_) * token_bytes), format_bytes(share));
      warnings_.push_back(
          fmt::format("window reduced from {} to {} tokens: {} of memory are available for keys and values",
                      context_, room, format_bytes(share)));
      context_ = static_cast<int>(room);
    }
    tokens = std::min(tokens, room);
    // Kept prefixes lie in pages of their own beyond those that running rows may need at most.
    if (options_.prompt_cache && options_.max_kv_tokens == 0)
      tokens += std::min(room - tokens, budget / token_bytes / kPageTokens * kPageTokens);
  }
  store_ = std::make_unique<StateStore>(
      layout, StoreOptions{.kv_dtype = dtype, .max_tokens = tokens, .formats = kv.formats});
  work_.pages_total = store_->pages_total();
  keep_recent(*store_, kv.recent);
  uncuttable_ =
      !layout.recurrent().empty() || !kv.recent.empty() ||
      std::any_of(layout.kv().begin(), layout.kv().end(), [](const KvSpec& spec) { return spec.window > 0; });
  if (options_.prompt_cache)
    cache_ = std::make_unique<PrefixCache>(
        *store_,
        PrefixCache::Bounds{.bytes = budget,
                            .recurrent_bytes = bounds.snapshot_bytes > 0 ? bounds.snapshot_bytes : budget,
                            .entries = uncuttable_ ? bounds.snapshot_entries : bounds.entries,
                            .ttl_s = uncuttable_ ? bounds.snapshot_ttl_s : bounds.ttl_s,
                            .least = std::max(bounds.min_prefix, kPageTokens),
                            .whole_only = bounds.whole_only});
  if (!cache_ || options_.prompt_cache_dir.empty()) return;
  if (kernel_mode() != KernelMode::native) {
    warnings_.push_back("prompt-cache-dir: the reference kernels' pages cannot be kept on disk");
    return;
  }
  disk_ = std::make_unique<DiskCache>(options_.prompt_cache_dir, fingerprint(checkpoint),
                                      options_.prompt_cache_disk_bytes, options_.prompt_cache_disk_ttl_s);
  cache_->on_evict(
      [this](const std::string& scope, std::span<const TokenId> prefix) { disk_->unseen(scope, prefix); });
}

void Loop::warm_up() {
  const int prompt = std::clamp(options_.warmup_prompt, 0, std::max(context_, 1));
  const std::vector<int32_t> tokens(static_cast<size_t>(std::max(prompt, 1)), 0);
  std::optional<RowState> state;
  if (store_) state = store_->make_row();
  for (const size_t count : {static_cast<size_t>(prompt), size_t{1}}) {
    if (count == 0) continue;
    if (state && state->length() + static_cast<int>(count) > context_) break;
    Step step;
    step.add(state ? &*state : nullptr, std::span(tokens).first(count), Wants::last);
    step.seal();
    std::vector<array> outputs = step.pending();
    outputs.insert(outputs.begin(), store_ ? model_->logits(step) : model_->hidden(step));
    for (const array& extra : step.pending()) outputs.push_back(extra);
    mx::eval(outputs);
    step.commit();
  }
}

void Loop::close() {
  stop("the engine was closed");
  drop_done();
  drafter_.reset();
  embedder_.reset();
  disk_.reset();  // when everything is written
  cache_.reset();
  store_.reset();
  model_.reset();
}

EngineStats Loop::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
  }
  stats.waiting += inbox_.size();
  stats.max_token_gap_ms = options_.max_token_gap_ms;
  stats.step_token_budget = pace_.budget();
  stats.memory_active = mx::get_active_memory();
  stats.memory_peak = mx::get_peak_memory();
  stats.memory_cache = mx::get_cache_memory();
  stats.memory_limit = options_.memory_limit;
  return stats;
}

bool Loop::turn() {
  try {
    return turn_once();
  } catch (const std::exception& error) {
    // Everything a request can cause is caught nearer to it: this is a fault of the loop's own.
    log::error("engine", "the loop failed: {}", error.what());
    stop(fmt::format("the engine stopped: {}", error.what()));
    drop_done();
    return false;
  }
}

bool Loop::turn_once() {
  collect();
  if (disk_) disk_->collect();
  sweep_cancelled();
  admit();
  bool worked = false;
  if (!jobs_.empty()) {
    embed_step();
    worked = true;
  }
  if (!running_.empty()) {
    auto pieces = plan();
    reserve(pieces);
    if (!pieces.empty()) run(pieces);
    drop_done();
    worked = true;
  }
  if (worked) publish();
  return worked || !waiting_.empty();
}

void Loop::collect() { work_.requests += inbox_.collect(waiting_, jobs_); }

void Loop::sweep_cancelled() {
  const bool all = cancel_all_;
  const auto cancelled = [&](const Sequence& s) {
    return all || s.cancelled->load(std::memory_order_relaxed);
  };
  for (auto& sequence : running_)
    if (cancelled(*sequence)) finish(*sequence, FinishReason::cancelled);
  for (auto& sequence : waiting_)
    if (cancelled(*sequence)) finish(*sequence, FinishReason::cancelled);
  const TimePoint now = Clock::now();
  const Error late(ErrorKind::cancelled, "the request's deadline passed before its answer was whole");
  for (auto& sequence : running_)
    if (sequence->request.deadline && *sequence->request.deadline <= now) fail_sequence(*sequence, late);
  for (auto& sequence : waiting_)
    if (sequence->request.deadline && *sequence->request.deadline <= now) fail_sequence(*sequence, late);
  if (all && !jobs_.empty()) {
    for (auto& job : jobs_) job->settle(Error(ErrorKind::cancelled, "the engine is shutting down"));
    const size_t count = jobs_.size();
    jobs_.clear();
    inbox_.left(0, count);
  }
  drop_done();
}

void Loop::send(Sequence& sequence, Event event) {
  try {
    sequence.sink(std::move(event));
  } catch (const std::exception& error) {
    // The receiver is gone or broken: its request ends, nobody else's.
    log::error("engine", "request {}: its sink threw: {}", sequence.id, error.what());
    sequence.cancelled->store(true);
  }
}

// Puts a row's memory aside for prompts that begin alike.
void Loop::keep(Sequence& s, RowState row) {
  if (!cache_ || !s.request.cache_prompt) return;
  if (row.length() != s.evaluated) {
    if (!store_->layout().recurrent().empty()) {  // a rejected draft is in it
      ++work_.cache_rejected_state;
      return;
    }
    row.truncate(s.evaluated);
  }
  write_out(s, row);
  cache_->keep(cache_scope(s), s.tokens, std::move(row));
}

void Loop::write_out(const Sequence& s, const RowState& row) {
  if (!disk_ || row.length() < kPageTokens) return;
  disk_->write(cache_scope(s), std::span(s.tokens).first(static_cast<size_t>(row.length())),
               RowImage::of(row.fork()));
}

// The prompt's full pages, so that requests which come while this one runs find them.
void Loop::keep_prompt(Sequence& s) {
  if (!cache_ || !s.request.cache_prompt || uncuttable_) return;
  const int length = s.prompt_tokens / kPageTokens * kPageTokens;
  if (length < std::max(2 * kPageTokens, options_.prompt_cache_bounds.min_prefix) ||
      s.cached + kPageTokens > length)
    return;
  RowState row = s.state->fork();
  row.truncate(length);
  cache_->keep(cache_scope(s), s.tokens, std::move(row));
}

/// Waits for prompts on their way to disk, which hold their pages until they are there; whether any were. Of
/// a slow disk that is long: only where a request would fail otherwise.
bool Loop::await_disk() {
  if (!disk_) return false;
  disk_->flush();
  return disk_->collect();
}

void Loop::clear_prompt_cache() {
  if (disk_) disk_->collect();
  if (cache_) cache_->clear();
  publish();
}

void Loop::finish(Sequence& sequence, FinishReason reason, std::optional<TokenId> eos) {
  if (sequence.done) return;
  sequence.done = true;
  std::vector<TokenId> held;
  if (sequence.state && reason != FinishReason::cancelled) {
    try {
      held.assign(sequence.tokens.begin(), sequence.tokens.begin() + sequence.evaluated);
      keep(sequence, *std::exchange(sequence.state, std::nullopt));
    } catch (const std::exception& error) {
      // The answer stands all the same.
      log::warn("engine", "request {}: not kept for later prompts: {}", sequence.id, error.what());
    }
  }
  sequence.state.reset();
  if (reason == FinishReason::cancelled) ++work_.cancelled;
  const Timings timings = sequence.timings(Clock::now());
  release(sequence, std::move(held));
  log::debug("engine",
             "request {} {}: {} prompt tokens, {} generated, {:.0f} ms queued, {:.0f} ms prompt, {:.0f} ms "
             "decode, {}",
             sequence.id, sequence.request.route, timings.prompt_tokens, timings.generated_tokens,
             timings.queue_ms, timings.prompt_ms, timings.decode_ms, to_string(reason));
  publish();  // before the last event: whoever gets it sees the slot free
  send(sequence, Finished{.reason = reason,
                          .timings = timings,
                          .seed = sequence.sampler->seed(),
                          .eos = eos,
                          .truncated = reason != FinishReason::cancelled && sequence.place() >= context_});
}

void Loop::fail_sequence(Sequence& sequence, const Error& error) {
  if (sequence.done) return;
  sequence.done = true;
  sequence.state.reset();
  release(sequence);
  ++work_.failed;
  log::error("engine", "request {} {}: {}", sequence.id, sequence.request.route, error.what());
  publish();
  send(sequence, Failed{error});
}

// The row's slot is free, and holds these tokens of it.
void Loop::release(Sequence& sequence, std::vector<TokenId> held) {
  slots_.give_back(sequence.slot, held.empty() ? "" : cache_scope(sequence), std::move(held));
  sequence.slot = -1;
}

void Loop::drop_done() {
  for (const auto& s : waiting_)
    if (s->done && !s->was_admitted) inbox_.left_queue(s->request.key);
  size_t count = std::erase_if(running_, [](const auto& s) { return s->done; });
  if (count > 0 && drafter_ && running_.empty()) drafter_->keep_only({});
  count += std::erase_if(waiting_, [](const auto& s) { return s->done; });
  if (count > 0) inbox_.left(count);
}

void Loop::stop(const std::string& why) {
  inbox_.stop(why);
  collect();
  const Error error(ErrorKind::internal, why);
  for (auto& sequence : running_) fail_sequence(*sequence, error);
  for (auto& sequence : waiting_) fail_sequence(*sequence, error);
  for (auto& job : jobs_) job->settle(error);
  inbox_.left(0, jobs_.size());
  jobs_.clear();
}

void Loop::embed_step() {
  const TimePoint before = Clock::now();
  const Embedder::Outcome outcome = embedder_->step(jobs_);
  ++work_.steps;
  work_.embedded_inputs += static_cast<uint64_t>(outcome.inputs);
  work_.prompt_tokens += static_cast<uint64_t>(outcome.tokens);
  work_.prompt_seconds += seconds_between(before, Clock::now());
  work_.kernel_seconds += outcome.kernel_seconds;
  if (outcome.any_succeeded) failures_in_a_row_ = 0;
  if (outcome.evaluation_failed && !outcome.any_succeeded)
    note_failure(Error(ErrorKind::internal, outcome.error));
  inbox_.left(0, std::erase_if(jobs_, [](const auto& job) { return job->settled; }));
}

void Loop::publish() {
  work_.running = 0;
  for (const auto& s : running_) work_.running += s->done ? 0 : 1;
  work_.waiting = 0;
  for (const auto& s : waiting_) work_.waiting += s->done ? 0 : 1;
  work_.memory_bytes = info_.weight_bytes;
  if (store_) {
    work_.pages_free = available_pages(*store_);
    work_.pages_reserved = store_->bytes();
    work_.memory_bytes += work_.pages_reserved;
  }
  if (cache_) {
    work_.cache_entries = cache_->entries();
    work_.cache_bytes = cache_->bytes();
    const PrefixCache::Figures& kept = cache_->figures();
    work_.cache_evictions = kept.over_budget + kept.for_pages;
    work_.cache_evicted_for_pages = kept.for_pages;
    work_.cache_superseded = kept.superseded;
    work_.cache_rejected_short = kept.too_short;
    work_.cache_rejected_large = kept.too_large;
    work_.cache_expired = kept.expired;
    work_.cache_capacity = cache_->capacity();
    work_.snapshot_capacity = cache_->recurrent_capacity();
    work_.snapshot_bytes = cache_->recurrent_bytes();
    if (uncuttable_) {
      work_.snapshot_entries = work_.cache_entries;
      work_.snapshot_too_large = work_.cache_rejected_large;
      work_.snapshot_evictions = work_.cache_evictions;
      work_.snapshot_superseded = work_.cache_superseded;
    }
  }
  if (disk_) {
    const DiskCache::Figures figures = disk_->figures();
    work_.disk_hits = figures.hits;
    work_.disk_misses = figures.misses;
    work_.disk_corrupt = figures.corrupt;
    work_.disk_writes = figures.writes;
    work_.disk_evictions = figures.evictions;
    work_.disk_foreign = figures.foreign;
    work_.disk = true;
    work_.disk_entries = static_cast<int>(figures.entries);
    work_.disk_bytes = figures.bytes;
    work_.disk_capacity = disk_->capacity();
  }
  const std::lock_guard lock(mutex_);
  stats_ = work_;
}

}  // namespace mlxcel
