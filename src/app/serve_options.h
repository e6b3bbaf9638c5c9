// The server's command line (server.md 2) as values. Thread: main. Failure: UsageError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/options.h"
#include "server/options.h"

namespace mlxcel::app {

struct ServeFlags {
  ModelFlags model;
  TransportOptions transport;
  ServiceOptions service;
  int parallel = 4;
  int max_queue = 32;
  int max_token_gap = 100;
  std::string step_token_budget = "auto";
  std::string pooling;
  std::string log_file;
  std::optional<int> verbosity;
  bool verbose = false, log_disable = false;
  bool decode_guard = false;  // --decode-timeout 0: the built-in 300 s stay
  bool one_at_a_time = false;
  int max_per_key = 0;
  bool prompt_cache = true, prompt_lookup = false;
  long long prompt_cache_mib = -1;
  size_t prompt_cache_bytes = 0;
  int draft_tokens = 0;
  std::vector<std::pair<std::string, std::string>> template_variables;  // name, JSON
  std::vector<std::string> notes;                                       // to be said at start-up
};

/// Variables of the template that flags set become part of --chat-template-kwargs, whose own win.
void merge_variables(ServeFlags& flags);

/// Reads flags and their environment variables; checks all that needs no model. --help throws
/// CLI::CallForHelp.
ServeFlags parse_serve_flags(int argc, char** argv, const std::string& program);

}  // namespace mlxcel::app
