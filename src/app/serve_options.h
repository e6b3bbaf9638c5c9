// The server's command line (server.md 2) as values. Thread: main. Failure: UsageError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/log_text.h"
#include "app/options.h"
#include "server/options.h"

namespace mlxcel::app {

/// Of a router over several models.
struct RouterFlags {
  std::string folder, preset;  // --models-dir, --models-preset
  size_t most = 4;
  bool autoload = true;
};

/// Models beside the first.
struct SideFlags {
  std::string embedder, reranker;  // references
  int max_length = 0;              // tokens of one text; 0: the model's
  bool first_embeds = false;       // --embedding-model names the served model itself
};

struct DraftFlags {
  std::string model;  // a reference
  std::string kind = "auto";
  int block = 0;
};

struct ServeFlags {
  ModelFlags model;
  EngineOptions engine;  // what rows of the table set there
  DraftFlags draft;
  SideFlags side;
  TransportOptions transport;
  ServiceOptions service;
  int parallel = -1;  // -1: four, or as many as decode in one step
  std::optional<int> max_prefill_tokens;
  int max_queue = 32;
  int max_token_gap = 100;
  std::string step_token_budget = "auto";
  std::string pooling;
  std::string log_file;
  std::optional<int> verbosity;
  bool verbose = false, log_disable = false, log_json = false;
  LogStyle log_style;
  std::optional<bool> log_colors;  // nothing: where the log goes to a terminal
  bool decode_guard = false;       // --decode-timeout 0: the built-in 300 s stay
  bool one_at_a_time = false;
  int max_per_key = 0;
  bool prompt_cache = true;
  long long prompt_cache_mib = -1;
  size_t prompt_cache_bytes = 0;
  std::vector<std::pair<std::string, std::string>> template_variables;  // name, JSON
  std::vector<std::string> notes;                                       // to be said at start-up
  RouterFlags router;
  bool several = false;  // a router: no model of its own
  double sleep_idle_seconds = -1;
  std::vector<std::string> words;  // as they were given
};

/// Variables of the template that flags set become part of --chat-template-kwargs, whose own win.
void merge_variables(ServeFlags& flags);

/// The engine's options; a drafter is looked for, and fetched where it is not here.
EngineOptions engine_options(const ServeFlags& flags);

/// Reads flags and their environment variables; checks all that needs no model. --help throws
/// CLI::CallForHelp.
ServeFlags parse_serve_flags(int argc, char** argv, const std::string& program);
/// The same for one model of a router: `preset` (words such as --temp=0) under the router's own flags.
/// `model` is a reference, `id` the name it is served under.
ServeFlags model_serve_flags(const std::vector<std::string>& words, const std::vector<std::string>& preset,
                             const std::string& model, const std::string& id);

/// Whether nobody on another machine can reach any of these addresses (--host).
bool only_local(const std::string& hosts);

}  // namespace mlxcel::app
