// A randomised soak: shared prefixes, turns that go on, random arrival, choices, priorities, a cache too
// small for all of it, drafts, adapters that come and go, full windows, slots to files and back, prompts on
// disk across a restart; rows that are cancelled, late, or whose step fails or finds no memory. Every answer
// is that of the same request alone and cold, bit for bit, and nothing is left behind: no page, no slot, no
// memory.
#pragma once

#include <filesystem>
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
  std::vector<Draw> scored;  // of the prompt
  std::optional<Finished> finished;
  std::string error;
};

/// What becomes of a request on its way.
enum class Fate { whole, cancelled, late, struck };

struct Running {
  size_t kind = 0;
  std::shared_ptr<Channel<Event>> events = std::make_shared<Channel<Event>>();
  Handle handle;
  Fate fate = Fate::whole;
  Answer wait();
};
Running start(Engine& engine, Request request, size_t kind = 0);

/// Tokens and the bits of their log-probabilities; an answer that was cut short may have fewer.
void expect_same(const Answer& want, const Answer& found, const std::string& what, bool cut);

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
  /// Where its loaded adapters 0, 1, ... lie, so that they can be loaded again under other ids.
  std::vector<std::filesystem::path> adapters = {};
  bool only_own_drafts = false;  // the other settings are soaked elsewhere
  bool own_is_right = true;      // what greedy rows draft for themselves is what they draw
};

/// Prompts that branch off three stems, some going on with an earlier answer; every third is sampled, one
/// wants its prompt's log-probabilities, two outgrow the window. `adapters`: ids 0 and 1 are loaded.
std::vector<Request> branching(Engine& cold, const Alone& alone, int window, bool adapters);

/// How many settings run() goes through: cache, lookup, both, drafts of its own, a disk.
inline constexpr int kSettings = 5;
/// So many requests in each setting, keys and values in mode `kv`.
void run(const Subject& subject, const std::string& kv, int requests);

/// MLXCEL_SOAK, requests for each model and mode in the long form; else `otherwise`.
int asked_for(int otherwise);

}  // namespace mlxcel::soak
