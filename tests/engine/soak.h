// A randomised soak: shared prefixes, turns that go on, random arrival, cancellation, choices, priorities, a
// cache too small for all of it, drafts. Every answer is that of the same request alone and cold, bit for
// bit, and nothing is left behind: no page, no slot, no memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/channel.h"
#include "engine/engine.h"

namespace mlxcel::soak {

struct Answer {
  std::vector<Draw> draws;
  std::optional<Finished> finished;
  std::string error;
};

struct Running {
  size_t kind = 0;
  std::shared_ptr<Channel<Event>> events = std::make_shared<Channel<Event>>();
  Handle handle;
  bool cancelled = false;
  Answer wait();
};
Running start(Engine& engine, Request request, size_t kind = 0);

/// Tokens and the bits of their log-probabilities; a request that was cancelled may have fewer.
void expect_same(const Answer& want, const Answer& found, const std::string& what, bool cancelled);

using Alone = std::function<Answer(Request)>;
/// The model whose engines are soaked.
struct Subject {
  std::string name;
  /// `own_draft`: the model drafts for itself.
  std::function<std::unique_ptr<Engine>(EngineOptions options, bool own_draft)> make;
  /// What is asked for, over and over; `alone` answers one of them by itself.
  std::function<std::vector<Request>(Engine& cold, const Alone& alone, int window)> kinds;
  int window = 192;
  bool repeats_itself = false;  // so that something is certainly looked up
};

/// Prompts that branch off three stems, some going on with an earlier answer; every third is sampled.
/// `adapters`: ids 0 and 1 are loaded.
std::vector<Request> branching(Engine& cold, const Alone& alone, int window, bool adapters);

/// So many requests in each of four settings (cache, lookup, drafts of its own), keys and values in mode
/// `kv`.
void run(const Subject& subject, const std::string& kv, int requests);

/// MLXCEL_SOAK, requests for each model and mode in the long form; else `otherwise`.
int asked_for(int otherwise);

}  // namespace mlxcel::soak
