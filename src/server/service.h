// What the routes share: the engine once it is loaded, the defaults of sampling, the metrics, the state of
// health. Owner: the application; outlives the router and the server. Thread: any.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/openai/answer.h"
#include "api/openai/models.h"
#include "api/openai/sampling_fields.h"
#include "engine/engine.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/response_store.h"
#include "server/slot_board.h"
#include "server/stream_log.h"

namespace mlxcel {

class Service {
 public:
  explicit Service(ServiceOptions options);

  enum class State { loading, ready, draining, stopped };
  State state() const { return state_; }
  void set_state(State state) { state_ = state; }

  /// The model can answer from now on.
  void ready(std::shared_ptr<Engine> engine);
  /// Forgets the engine (joins its thread when nobody else holds it); the socket side must still be alive.
  void release();

  /// Null until ready().
  std::shared_ptr<Engine> engine() const;
  /// Throws Refusal 503 while loading or draining; 501 where `encoder` is not what the model is.
  std::shared_ptr<Engine> engine_or_refuse() const { return require(); }
  std::shared_ptr<Engine> generator() const;
  std::shared_ptr<Engine> embedder() const;
  const std::shared_ptr<const ChatTemplate>& chat_template() const { return template_; }  // after ready()

  /// The request's fields over the server's flags over the checkpoint's values over the numbers of
  /// server.md 2.6.
  SamplingParams sampling(const openai::SamplingFields& fields) const;
  std::vector<std::string> stops(const openai::SamplingFields& fields) const;
  openai::Bounds bounds(const Engine& engine) const;
  openai::Identity identity(const char* prefix) const;
  openai::ModelEntry entry() const;
  bool serves(const std::string& model) const;
  bool can_truncate_vectors() const { return matryoshka_; }

  const ServiceOptions& options() const { return options_; }
  Metrics& metrics() { return metrics_; }
  SlotBoard& slots() { return slots_; }
  ResponseStore& responses() { return responses_; }
  ResponseStore& conversations() { return conversations_; }
  StreamLogs& streams() { return streams_; }
  /// A flag that ends the thought of the answer with this id, for its key alone; it lives as long as the
  /// answer.
  std::shared_ptr<std::atomic<bool>> control_of(const std::string& id, const std::string& key);
  bool end_thought(const std::string& id, const std::string& key);

 private:
  std::shared_ptr<Engine> require() const;
  void read_checkpoint_defaults(const Engine& engine);

  const ServiceOptions options_;
  std::atomic<State> state_{State::loading};
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const ChatTemplate> template_;
  SamplingFlags checkpoint_;  // generation_config.json or GGUF's sampling keys
  std::shared_ptr<const TokenBiases> language_bias_;
  bool matryoshka_ = false;
  Metrics metrics_;
  SlotBoard slots_;
  ResponseStore responses_, conversations_;
  StreamLogs streams_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<std::atomic<bool>>> controls_;  // under mutex_
};

/// A fresh id: `prefix` and 24 random letters and digits.
std::string random_id(const std::string& prefix);

}  // namespace mlxcel
