// The loop behind Engine: admission, schedule, step, delivery. One per loaded model, a guest of the model
// thread. docs/architecture.md tells the order of events; spec words: step, row, slot, budget.
// Owner: Engine. Thread: as marked. Failure: rows fail alone; eight failed evaluations in a row stop it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/front/pooling.h"
#include "engine/loop/adapters.h"
#include "engine/loop/allowance.h"
#include "engine/loop/disk_cache.h"
#include "engine/loop/draft_policy.h"
#include "engine/loop/drafter.h"
#include "engine/loop/embedder.h"
#include "engine/loop/fail_step.h"
#include "engine/loop/fault.h"
#include "engine/loop/inbox.h"
#include "engine/loop/model_thread.h"
#include "engine/loop/pace.h"
#include "engine/loop/prefix_cache.h"
#include "engine/loop/prefix_file.h"
#include "engine/loop/sequence.h"
#include "engine/loop/slots.h"
#include "models/model.h"
#include "state/store.h"

namespace mlxcel {

class Loop final : public ModelThread::Guest {
 public:
  static constexpr int kMaxFailures = 8;
  static constexpr size_t kMaxTurns = 4096;  // keys whose turn is remembered

  Loop(const EngineOptions& options, std::vector<TokenId> eos);
  ~Loop() override;

  // Model thread.
  void open(std::unique_ptr<Model> model, const Checkpoint& checkpoint, const Tokenizer* tokenizer);
  void close();
  void clear_prompt_cache();  // in memory
  bool turn() override;
  /// What a slot holds, pinned until it is dropped here.
  struct SlotImage {
    std::string scope;
    std::vector<TokenId> tokens;
    std::unique_ptr<RowImage> image;
  };
  SlotImage image_of_slot(int slot);
  void fill_slot(int slot, const PrefixFile& file);
  int empty_slot(int slot);

  // Constant once open() has returned: any thread.
  const ModelInfo& info() const { return info_; }
  int context() const { return context_; }
  int max_input() const { return embedding_.max_input; }
  const std::string& kv_label() const { return kv_label_; }
  const char* draft_kind() const { return draft_kind_; }
  /// Any thread.
  DraftPolicyReport draft_policy() const;
  const std::string& speculation_label() const { return speculation_label_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::vector<TokenId>& eos() const { return eos_; }

  // Any thread. The caller wakes the model thread afterwards.
  std::pair<uint64_t, std::shared_ptr<std::atomic<bool>>> submit(Request request, Sink sink);
  std::future<EmbedJob::Outcome> embed(const EmbedRequest& request);
  std::future<EmbedJob::Outcome> score(const ScoreRequest& request);
  void refuse_new() { inbox_.refuse_new(); }
  /// True when nothing is left before the timeout.
  bool wait_until_empty(double timeout_s) { return inbox_.wait_until_empty(timeout_s); }
  void cancel_all() { cancel_all_ = true; }
  EngineStats stats() const;
  std::optional<std::string> failure() const { return inbox_.failure(); }
  void clear_disk_cache() {
    if (disk_) disk_->clear();
  }
  /// Waits until what is to be kept on disk is there: until then its pages are held.
  void flush_disk_cache() {
    if (disk_) disk_->flush();
  }
  void set_step_token_budget(int tokens);
  void set_max_per_key(size_t requests) { max_per_key_ = requests; }
  void set_language_bias(const LanguageBias& bias);
  int step_token_budget() const { return pace_.budget(); }
  int max_token_gap_ms() const { return options_.max_token_gap_ms; }
  /// What files of kept prefixes depend on; reads the checkpoint's the first time.
  const std::string& fingerprint(const Checkpoint& checkpoint);
  AdapterShelf& adapters() { return adapters_; }
  /// Reads and packs on the caller's thread.
  int load_adapter(const AdapterSource& source);

 private:
  // loop.cpp: what comes and goes.
  bool turn_once();
  void make_store(const Checkpoint& checkpoint);
  void make_drafter(const Checkpoint& checkpoint);
  std::string choose_drafter();
  std::string own_drafter();
  NetworkDrafter::Options drafter_options() const;
  void warm_up();
  void collect();
  void sweep_cancelled();
  void keep(Sequence& sequence, RowState row);
  void write_out(const Sequence& sequence, const RowState& row);
  void keep_prompt(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason, std::optional<TokenId> eos = std::nullopt);
  void fail_sequence(Sequence& sequence, const Error& error);
  void send(Sequence& sequence, Event event);
  void drop_done();
  void release(Sequence& sequence, std::vector<TokenId> held = {});
  void stop(const std::string& why);
  void embed_step();
  void check_inputs(EmbedJob& job) const;
  std::future<EmbedJob::Outcome> enqueue(std::unique_ptr<EmbedJob> job);
  void publish();

  // admission.cpp: who runs, and on whose pages.
  void admit();
  std::deque<std::unique_ptr<Sequence>>::iterator pick_next();
  bool waits_for_leader(const Sequence& sequence) const;
  void share_prompt(Sequence& leader, std::span<const float> logits);
  int pages_promised() const;
  bool make_room(int pages);
  Slots::Slot& idle_slot(int slot);  // slot_files.cpp
  std::optional<Error> lack_of_memory(const Sequence& sequence, int pages);
  bool drop_parked();
  bool await_disk();
  void find_prefix(Sequence& sequence);
  void take_in(Sequence& sequence);
  std::string cache_scope(const Sequence& sequence) const;
  int boundary_of(const Sequence& sequence) const;
  bool preempt_below(Priority priority);
  void park(Sequence& sequence);
  void put_back(std::vector<std::unique_ptr<Sequence>>::iterator at);

  // step.cpp: one step.
  void shift(Sequence& sequence);
  std::vector<Piece> plan();
  int draft(std::vector<Piece>& pieces, int room);  // draft.cpp
  int most_drafted() const;
  void judge_drafts(const std::vector<Piece>& pieces, uint64_t made, double ms);
  std::pair<array, array> states_beside(Step& step);
  void show_states(const std::vector<Piece>& pieces, const array& states);
  void reserve(std::vector<Piece>& pieces);
  void run(const std::vector<Piece>& pieces);
  void forward(const std::vector<Piece>& pieces);
  void deliver(Sequence& sequence, const Piece& piece, const float* logits, int rows);
  bool take(Sequence& sequence, std::span<const float> logits);
  Draw drawn(Sequence& sequence, std::span<const float> logits, const Proposal* drafted = nullptr);
  std::vector<Sequence*> row_order() const;
  void rewind(Sequence& sequence, const Piece& piece);
  void deliver_scores(Sequence& sequence, const Piece& piece, const float* logits);
  bool put(Sequence& sequence, Draw draw);
  void note_failure(const std::exception& error);
  void relieve(const std::vector<Piece>& pieces, const std::exception& error);
  int max_scored_tokens() const;

  // denoise.cpp: text diffusion.
  void check_denoising(const Denoising& asked) const;
  void begin_canvas(Sequence& sequence) const;
  Piece canvas_piece(Sequence& sequence, int room) const;
  void deliver_canvas(Sequence& sequence, const Piece& piece, const float* logits, int rows);
  void settle_in_form(Sequence& sequence, const float* logits, int open);
  Piece sketch_piece(Sequence& sequence, int room) const;
  void deliver_sketch(Sequence& sequence, const Piece& piece, const float* logits);

  // request.cpp: what a request is checked for and turned into, on the caller's thread.
  void check_prompt(const Request& request) const;
  std::unique_ptr<Sequence> make_sequence(Request request, Sink sink);
  std::shared_ptr<const TokenBytes> token_bytes();
  std::shared_ptr<const TokenBiases> language_bias();
  std::shared_ptr<const TokenBiases> biases_of(const LanguageBias& bias) const;

  const EngineOptions options_;
  std::atomic<size_t> max_per_key_;
  const std::vector<TokenId> eos_;
  const std::optional<FailStep> fail_step_;
  const std::optional<LoopDetection> loops_;  // of the environment
  Pace pace_;

  ModelInfo info_;
  int context_ = 0;
  EmbeddingSetup embedding_;
  std::string kv_label_;
  std::vector<KvFormat> kv_formats_;
  std::string recent_label_;  // what those do not say, for the fingerprint
  std::once_flag fingerprint_once_;
  std::string fingerprint_;
  const char* draft_kind_ = "";
  std::string speculation_label_ = "off";
  std::vector<std::string> warnings_;

  AdapterShelf adapters_;

  // Model thread only.
  std::unique_ptr<Model> model_;
  const Tokenizer* tokenizer_ = nullptr;  // the engine's; any thread
  std::once_flag token_bytes_once_;
  std::shared_ptr<const TokenBytes> token_bytes_;
  std::mutex language_mutex_;
  std::optional<std::shared_ptr<const TokenBiases>> language_bias_;  // in force; nothing: not computed yet
  const bool counts_language_;                                       // MLXCEL_LANG_BIAS_COUNTERS
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<PrefixCache> cache_;  // none: switched off, or an encoder
  std::unique_ptr<DiskCache> disk_;     // none: not asked for. Made by open(): any thread reads the pointer
  bool uncuttable_ = false;             // recurrent state or windows: prefixes end where they were put aside
  StepCost cost_;
  std::unique_ptr<Drafter> drafter_;  // none: plain decoding
  DraftPolicy policy_;
  int own_most_ = 0;           // tokens of a draft that suit the drafter
  double draft_ms_ = 0.0;      // what the drafts of the step at hand took
  bool crowded_ = false;       // the answer that is measured was not alone all the time
  int steps_since_chunk_ = 0;  // decode steps since the last that held a part of a prompt
  uint64_t planned_ = 0;       // steps
  Allowance allowance_;
  Slots slots_;
  size_t memory_left_ = 0;  // as it was at memory_seen_
  TimePoint memory_seen_ = {};
  std::map<std::string, uint64_t, std::less<>> turns_;  // when each key was last served
  uint64_t turn_ = 0;
  std::unique_ptr<Embedder> embedder_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Embedder::Jobs jobs_;
  EngineStats work_;  // counted here, copied out by publish()
  int failures_in_a_row_ = 0;

  // Shared.
  Inbox inbox_;
  std::atomic<bool> cancel_all_{false};
  mutable std::mutex mutex_;
  EngineStats stats_;
};

}  // namespace mlxcel
