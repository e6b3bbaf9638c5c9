// The engine: one loop on one thread owns MLX and every loaded model; the CLI, the server and embeddings are
// its clients. A sequence is a row of ragged steps; several prompts and decodes share a step.
// Owner: the application. Thread: every member may be called from any thread; sinks are called on the model
// thread and must only hand over (post, push), never block.
// Failure: submit() throws invalid_request for what can be known at once; later faults arrive as Failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "models/model.h"
#include "sample/sampler.h"
#include "text/chat_template.h"
#include "text/grammar/grammar.h"
#include "text/language_bias.h"
#include "text/tokenizer.h"

namespace mlxcel {

/// No place for a new request now (queue full, shutting down): the same request may pass later.
class Busy : public Error {
 public:
  explicit Busy(const std::string& message) : Error(ErrorKind::out_of_memory, message) {}
};

/// The same for one key, whose waiting requests have used up its share of the queue.
class KeyBusy : public Busy {
 public:
  using Busy::Busy;
};

/// A LoRA adapter and how much of it, beside its own alpha / r.
struct AdapterSource {
  std::filesystem::path path = {};
  float scale = 1.0f;
};
struct AdapterScale {
  int id = 0;
  float scale = 1.0f;
};
struct AdapterInfo {
  int id = 0;
  std::string path = {};
  float scale = 1.0f;       // in force
  std::string format = {};  // "PEFT", "MLX"
  int rank = 0;             // the largest
  size_t bytes = 0;
};

struct EngineOptions {
  std::filesystem::path model = {};
  int context = 0;                     // window per sequence; 0: the model's, or what memory allows of it
  int parallel = 4;                    // sequences at once
  int prefill_chunk = 2048;            // prompt tokens per step; 0: whole prompts
  int step_token_budget = 0;           // tokens of a step while rows decode; 0: learned from max_token_gap_ms
  int max_token_gap_ms = 100;          // what a learned budget keeps a step under
  int prefill_interval = 1;            // while rows decode, every so many steps may hold parts of prompts
  size_t max_queue = 256;              // waiting requests; beyond: Busy
  std::string kv_cache_mode = "fp16";  // a name of state/kv_mode.h
  int kv_boundary_values = 2;          // turbo modes: so many layers at either end keep 16-bit values
  bool kv_skip_last_layer = true;      // coded modes: the last layer keeps 16 bits
  size_t max_kv_tokens = 0;            // pages for that many tokens over all sequences; 0: as memory allows
  size_t kv_budget_bytes = 0;          // what pages may take at most; 0: as memory allows
  size_t memory_limit = 0;     // what this process may hold when it takes a request in; 0: what there is
  double kv_watermark = 0.01;  // share of the pages that stays free when a request joins running rows
  bool preemption = false;     // rows of strictly lower priority may be put back in the queue
  bool prompt_cache = true;    // keep what was evaluated for prompts that begin alike
  size_t prompt_cache_bytes =
      0;  // keys, values and states kept; 0: 2 GiB, or a quarter of the memory available
  std::filesystem::path prompt_cache_dir = {};  // also keep them here, across restarts; empty: nowhere
  size_t prompt_cache_disk_bytes = size_t{10} << 30;
  double prompt_cache_disk_ttl_s = 0;  // entries not used for so long go; 0: they stay
  std::string weight_edits = {};       // what was done to the weights beyond their files (surgery)
  size_t max_per_key = 0;              // running requests of one key while others wait; 0: any number
  size_t keys = 1;             // how many there are: each may fill its share of the queue, beyond: KeyBusy
  // Speculation: answers do not change, whatever is drafted.
  bool prompt_lookup = false;              // draft from what prompt and answer repeat
  int prompt_lookup_max_batch = 2;         // rows that decode at once, beyond which nothing is looked up
  std::filesystem::path draft_model = {};  // draft by a smaller model over the same vocabulary
  std::function<std::unique_ptr<Model>()> make_drafter =
      nullptr;                 // the same, made on the model thread (tests)
  bool internal_mtp = false;   // draft by the checkpoint's own block that predicts further
  int draft_tokens = 0;        // most tokens of a draft; 0: what suits the kind
  bool draft_adaptive = true;  // no more of them than pay, by what is accepted and what it costs
  float draft_p_min = 0.0f;    // a draft ends before a token that its model finds less likely
  std::string pooling = {};    // encoders: mean, cls, last, max; empty: the checkpoint's own
  std::vector<AdapterSource> adapters = {};  // loaded with the model, ids 0, 1, … in this order
  bool adapters_apply = true;                // false: their scales start at 0
  bool fuse_adapters = false;                // baked into the weights; scales are then fixed
  LanguageBias language_bias = {};           // of requests that bring none
  bool reranker = false;  // decoders: rows keep nothing; score() judges prompts by their last token's logits
  bool warmup = true;
  std::function<void(size_t done, size_t total)> progress = nullptr;
};

/// Ends an answer whose last tokens are one pattern over and over (finish "stop").
struct LoopDetection {
  int max_pattern = 0;  // tokens of a pattern; 0: off
  int min_pattern = 1;
  int min_count = 2;   // how often it must stand at the end; at least 2
  bool given = false;  // the request said so, also where it is off: the environment and the family's habit do
                       // not count
};

enum class Priority { high, normal, low };

struct Request {
  std::vector<TokenId> prompt = {};
  SamplingParams sampling = {};
  LoopDetection loops = {};
  GrammarUse grammar = {};  // what the answer must look like
  int max_tokens = -1;      // -1: to the window's end; 0: evaluate the prompt only
  std::optional<std::vector<AdapterScale>> adapters = {};  // others 0; nothing: the scales in force
  std::vector<TokenId> eos = {};                           // end tokens; filled from the model when empty
  bool ignore_eos = false;
  bool prompt_logprobs = false;  // Scored events for the prompt's tokens (echo with logprobs)
  int choice = 0;                // index among n choices, for the seed
  bool cache_prompt = true;      // reuse kept prefixes and keep this one
  std::string cache_scope = {};  // prefixes are shared inside one scope only (key, template signature, ...)
  int history_tokens = 0;        // tokens of the prompt that the next turn begins with whatever the answer is
  uint64_t group = 0;            // not 0: choices of one prompt, which is evaluated once for all of them
  Priority priority = Priority::normal;
  std::string key = {};                    // keys of a lane take turns
  std::optional<TimePoint> deadline = {};  // Failed{cancelled} when it passes
  std::string route = {};                  // who asks ("/v1/completions", "cli"): logs, MLXCEL_FAIL_STEP
};

enum class FinishReason { stop, length, cancelled };
const char* to_string(FinishReason reason);

struct Timings {
  double queue_ms = 0, prompt_ms = 0, decode_ms = 0;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int drafted = 0, accepted = 0, draft_rounds = 0;  // speculation
};

struct Scored {
  std::vector<Draw> tokens;
};  // prompt tokens 1..n-1, in order, may come in parts
struct Token {
  Draw draw;
  Timings timings;
  uint32_t seed = 0;
};  // one generated token; EOS is not sent
struct Finished {
  FinishReason reason;
  Timings timings;
  uint32_t seed;
  std::optional<TokenId> eos;
};
struct Failed {
  Error error;
};
using Event = std::variant<Scored, Token, Finished, Failed>;  // Finished or Failed is the last
using Sink = std::function<void(Event)>;

/// A running request. Dropping the handle does not cancel it.
class Handle {
 public:
  void cancel() const;  // leaves within two steps; Finished{cancelled} follows
  uint64_t id() const { return id_; }

 private:
  friend class Engine;
  uint64_t id_ = 0;
  std::shared_ptr<std::atomic<bool>> cancelled_;
};

struct EmbedRequest {
  std::vector<std::vector<TokenId>> inputs = {};  // with CLS, SEP and the like
  std::string pooling = {};                       // mean, cls, last, max; empty: the model's own
  bool normalize = true;
  int dimensions = 0;     // 0: all; else the first ones, normalised again
  bool truncate = false;  // cut inputs over max_input() instead of refusing them; a final special token stays
};
/// Rerankers: one score for each input, a pair of texts as the model wants them.
struct ScoreRequest {
  std::vector<std::vector<TokenId>> inputs = {};  // whole prompts, special tokens included
  std::vector<int> seconds = {};  // where each input's second text begins; empty: unknown to the model
  /// Models without a classifier (info().labels is 0): the score is the logit of the first answer minus that
  /// of the second, behind the last token. Needs EngineOptions.reranker.
  std::optional<std::pair<TokenId, TokenId>> answers = {};
};
struct Scores {
  std::vector<std::vector<float>> scores;  // a logit for each label; with answers, their difference alone
  int prompt_tokens = 0;
};
struct Embeddings {
  std::vector<std::vector<float>> vectors;
  int prompt_tokens = 0;  // evaluated, over all inputs
  int truncated = 0;      // inputs that were cut
};

struct EngineStats {  // a copy, consistent, cheap
  uint64_t prompt_tokens = 0, generated_tokens = 0, requests = 0, failed = 0, cancelled = 0, steps = 0,
           mixed_steps = 0;
  uint64_t preemptions = 0, embedded_inputs = 0;
  uint64_t cache_hits = 0, cache_misses = 0, cache_tokens_reused = 0, cache_evictions = 0;
  uint64_t disk_hits = 0, disk_misses = 0, disk_corrupt = 0, disk_writes = 0;  // of the prompt cache
  uint64_t drafted = 0, accepted = 0, draft_rounds = 0;
  double prompt_seconds = 0, decode_seconds = 0;
  double kernel_seconds = 0;  // of both, inside evaluation: the rest is the engine's own time between steps
  int running = 0, waiting = 0, step_rows = 0;
  int pages_free = 0, pages_total = 0;  // pages that only the prompt cache holds are free: it gives them back
  int cache_entries = 0;
  size_t cache_bytes = 0;
  size_t memory_bytes = 0;
};

class Engine {
 public:
  /// Opens, loads and warms the model; returns when it can answer. `edit`: what is done to the checkpoint
  /// between opening and loading. Errors as load_model's.
  static std::unique_ptr<Engine> load(const EngineOptions& options,
                                      const std::function<void(Checkpoint&)>& edit = nullptr);
  /// An engine over a model made by `make` on the model thread, for tests. Tokenizer and template may be
  /// null.
  static std::unique_ptr<Engine> with_model(std::function<std::unique_ptr<Model>()> make,
                                            std::shared_ptr<const Tokenizer> tokenizer,
                                            std::shared_ptr<const ChatTemplate> chat_template,
                                            Checkpoint checkpoint, const EngineOptions& options);
  ~Engine();  // cancels what runs, drains; not from a sink
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Handle submit(Request request, Sink sink);
  /// Compiles what `constraint` asks for over this model's vocabulary, on the caller's thread (the first time
  /// some hundred milliseconds). invalid_request, with the constraint's param, for what cannot be enforced
  /// exactly.
  std::shared_ptr<const Grammar> compile(const Constraint& constraint) const;
  /// Blocks the caller. Errors are thrown; inputs over max_input() are invalid_request naming both lengths.
  Embeddings embed(const EmbedRequest& request);
  /// The same for scores. unsupported where the model has no classifier and the request no answers.
  Scores score(const ScoreRequest& request);
  /// Refuses new requests, lets running ones end (at most `timeout_s`), then cancels. Not from a sink.
  void drain(double timeout_s);
  /// Forgets every kept prefix.
  void clear_prompt_cache();

  // Adapters. Requests have those that were in force, or asked for, when they were handed in.
  std::vector<AdapterInfo> adapters() const;
  bool adapters_fused() const;
  /// Reads and packs on the caller's thread; rows run on meanwhile. The new id. unsupported where they are
  /// fused.
  int load_adapter(const AdapterSource& source);
  /// not_found for an id that is not loaded. Running rows keep what they use.
  void unload_adapter(int id);
  /// Those not listed get 0; ids that are not loaded are returned. unsupported where adapters are fused.
  std::vector<int> set_adapter_scales(const std::vector<AdapterScale>& scales);

  /// Why the engine stopped (eight failed evaluations in a row); nothing while it works.
  std::optional<std::string> failure() const;

  const ModelInfo& info() const;
  int context() const;                 // window per sequence
  int max_input() const;               // encoders: tokens of one input
  uint32_t step_token_budget() const;  // in force now
  const std::shared_ptr<const Tokenizer>& tokenizer() const;
  const std::shared_ptr<const ChatTemplate>& chat_template() const;  // may be null
  const Checkpoint& checkpoint() const;
  const std::vector<TokenId>& eos() const;
  EngineStats stats() const;
  std::string kv_label() const;                      // "f16: applied to 30 of 30 layers"
  std::string draft_kind() const;                    // "draft", "prompt-lookup"; empty: plain decoding
  std::string speculation_label() const;             // "draft by llama (Q4_1), verify exact"; "off"
  const std::vector<std::string>& warnings() const;  // of checkpoint, model and window, for the banner

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  static std::unique_ptr<Engine> begin(std::unique_ptr<Impl> impl,
                                       const std::function<std::unique_ptr<Model>()>& make,
                                       const EngineOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
