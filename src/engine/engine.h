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
#include <vector>

#include "engine/options.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "models/model.h"
#include "text/chat_template.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace mlxcel {

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

/// A slot's file, written or read.
struct SlotFile {
  int tokens = 0;
  size_t bytes = 0;
  double ms = 0;
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
  /// Forgets every kept prefix; `disk`: their files of this model too.
  void clear_prompt_cache(bool disk = false);

  // What may change while it runs; in force from the next step, or the next request, on.
  /// invalid_request for a budget that does not hold one token of each sequence; 0: learned.
  void set_step_token_budget(int tokens);
  void set_max_per_key(size_t requests);
  /// invalid_request for languages that are none. Computes its tokens on the caller's thread.
  void set_language_bias(const LanguageBias& bias);

  // Slots, 0 to parallel - 1: a row has one while it runs (Timings.slot), and what it held stays known under
  // it. A slot that runs is Busy; one that is not there not_found.
  /// Writes tokens, keys, values and states to a file, whole or not at all. invalid_request where the slot
  /// holds nothing (any more), unsupported where its state cannot be written.
  SlotFile save_slot(int slot, const std::filesystem::path& file);
  /// The next request that begins alike goes on from the file's tokens. invalid_request for a file that is
  /// damaged, or of another model or setting; nothing has changed then.
  SlotFile restore_slot(int slot, const std::filesystem::path& file);
  /// Forgets what the slot held: so many tokens.
  int erase_slot(int slot);

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
  int max_token_gap_ms() const;
  const std::shared_ptr<const Tokenizer>& tokenizer() const;
  const std::shared_ptr<const ChatTemplate>& chat_template() const;  // may be null
  const Checkpoint& checkpoint() const;
  const std::vector<TokenId>& eos() const;
  EngineStats stats() const;
  std::string kv_label() const;    // "f16: applied to 30 of 30 layers"
  std::string draft_kind() const;  // "draft", "prompt-lookup"; empty: plain decoding
  DraftPolicyReport draft_policy() const;
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
