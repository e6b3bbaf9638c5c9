// What the routes share: the engine once it is loaded, the defaults of sampling, the metrics, the state of
// health. Owner: the application; outlives the router and the server. Thread: any.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/answer.h"
#include "api/openai/models.h"
#include "api/openai/sampling_fields.h"
#include "engine/engine.h"
#include "server/downloads.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/reasoning_echo.h"
#include "server/response_store.h"
#include "server/settings.h"
#include "server/slot_board.h"
#include "server/stream_log.h"
#include "server/traces.h"

namespace mlxcel {

class ModelPool;

class Service {
 public:
  /// `front`: the service of the whole server, where this one is one of its models': what is kept for later
  /// requests and what is counted is the front's.
  explicit Service(ServiceOptions options, Service* front = nullptr);

  enum class State { loading, ready, sleeping, draining, stopped };
  State state() const { return state_; }
  void set_state(State state) { state_ = state; }

  /// The model can answer from now on.
  void ready(std::shared_ptr<Engine> engine);
  /// Forgets the engine (joins its thread when nobody else holds it); the socket side must still be alive.
  void release();
  /// The same, but it may be ready() again. `asleep`: until somebody asks.
  void suspend(bool asleep);
  /// Counted since the server began, over every time the model was loaded; nothing before the first.
  std::optional<EngineStats> stats() const;
  /// The engine has stopped by itself.
  bool failed() const;

  /// Models behind this service; null where it is one model's.
  ModelPool* pool() const { return pool_; }
  /// The pool that this model belongs to; null where it was loaded for good.
  ModelPool* home() const { return front_ ? front_->pool() : nullptr; }
  void set_pool(ModelPool* pool) { pool_ = pool; }

  /// Models beside the first, for vectors and for scores; either may be null. Before requests come.
  struct Side {
    std::string id;  // what requests and answers call it
    std::shared_ptr<Engine> engine;
    explicit operator bool() const { return engine != nullptr; }
  };
  void set_sides(Side embedder, Side reranker);
  std::vector<openai::ModelEntry> side_entries() const;

  /// Null until ready().
  std::shared_ptr<Engine> engine() const;
  /// Throws Refusal 503 while loading or draining; 501 where `encoder` is not what the model is.
  std::shared_ptr<Engine> engine_or_refuse() const { return require(); }
  std::shared_ptr<Engine> generator() const;
  std::shared_ptr<Engine> embedder() const;
  std::shared_ptr<Engine> reranker() const;
  /// What vectors and scores come from, by name: the side model's, else the served one's.
  const std::string& embedder_id() const { return name_of(root().side_embedder_); }
  const std::string& reranker_id() const { return name_of(root().side_reranker_); }
  bool embeds_as(const std::string& model) const;
  /// Also while the model sleeps; 503 before it has been there.
  struct Vocabulary {
    std::shared_ptr<const Tokenizer> tokenizer;
    int size = 0;
  };
  Vocabulary vocabulary() const;
  const std::shared_ptr<const ChatTemplate>& chat_template() const { return template_; }  // after ready()

  /// The request's fields over the server's flags over the checkpoint's values over the numbers of
  /// server.md 2.6.
  SamplingParams sampling(const openai::SamplingFields& fields) const;
  std::vector<std::string> stops(const openai::SamplingFields& fields) const;
  openai::Bounds bounds(const Engine& engine) const;
  openai::Identity identity(const char* prefix) const;
  openai::ModelEntry entry() const;
  bool serves(const std::string& model) const;
  bool can_truncate_vectors() const;

  const ServiceOptions& options() const { return options_; }
  Settings& settings() { return settings_; }
  /// What is in force now.
  std::shared_ptr<const LiveSettings> live() const {
    return front_ ? front_->settings_.over(settings_.live()) : settings_.live();
  }
  /// Tells the engine, and those of the models behind this service, what is in force.
  void tune_engines() const;
  Downloads& downloads() { return front_ ? front_->downloads() : downloads_; }
  /// Where models lie on disk.
  std::filesystem::path store() const;
  /// Null where spans are not wanted.
  Traces* traces() const { return front_ ? front_->traces() : traces_.get(); }
  Metrics& metrics() { return front_ ? front_->metrics() : metrics_; }
  SlotBoard& slots() { return slots_; }
  ResponseStore& responses() { return front_ ? front_->responses() : responses_; }
  ResponseStore& conversations() { return front_ ? front_->conversations() : conversations_; }
  ReasoningEcho& thoughts() { return front_ ? front_->thoughts() : thoughts_; }
  StreamLogs& streams() { return front_ ? front_->streams() : streams_; }
  /// A flag that ends the thought of the answer with this id, for its key alone; it lives as long as the
  /// answer.
  std::shared_ptr<std::atomic<bool>> control_of(const std::string& id, const std::string& key);
  bool end_thought(const std::string& id, const std::string& key);

 private:
  const Service& root() const { return front_ ? *front_ : *this; }
  const std::string& name_of(const Side& side) const { return side ? side.id : options_.model_id; }
  void require_open(bool asleep_too) const;
  void tune(Engine& engine, bool fresh) const;
  std::shared_ptr<Engine> require() const;
  void read_checkpoint_defaults(const Engine& engine);
  bool reranks(const Engine& engine) const;
  openai::ModelEntry describe(const Engine& engine) const;
  openai::ModelEntry describe_side(const Side& side, const char* capability) const;

  const ServiceOptions options_;
  Service* const front_;
  std::atomic<ModelPool*> pool_{nullptr};
  std::atomic<State> state_{State::loading};
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const ChatTemplate> template_;
  SamplingFlags checkpoint_;  // generation_config.json or GGUF's sampling keys
  bool matryoshka_ = false;
  std::optional<EngineStats> carried_;  // of the engines that were let go
  Vocabulary vocabulary_;               // of the engine that was there last
  openai::ModelEntry entry_;            // the same
  Metrics metrics_;
  SlotBoard slots_;
  ResponseStore responses_, conversations_;
  StreamLogs streams_;
  ReasoningEcho thoughts_;
  Side side_embedder_, side_reranker_;
  Downloads downloads_;
  Settings settings_;
  std::unique_ptr<Traces> traces_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<std::atomic<bool>>> controls_;  // under mutex_
};

/// A fresh id: `prefix` and 24 random letters and digits.
std::string random_id(const std::string& prefix);

}  // namespace mlxcel
