// The command line of `run`, `generate` and `chat` as values. Thread: main. Failure: UsageError.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/flags/shared.h"
#include "app/sampling.h"

namespace mlxcel::app {

enum class Door { run, generate, chat };
const char* to_string(Door door);

struct GenerateFlags {
  FlagState state;  // what the server's table holds too: model, sampling, template, reasoning, drafts
  std::optional<std::string> prompt;
  std::string file, system;
  int max_tokens = -1;
  bool no_template = false;
  bool json = false, profile = false, show_reasoning = false;
  bool recommend = false;
  bool prompt_lookup = false;
  std::vector<std::string> images, sounds, videos;
  GrammarFlags grammar;

  ModelFlags& model() { return state.serve.model; }
  const ModelFlags& model() const { return state.serve.model; }
};

/// Parses and checks all that can be known without a model.
GenerateFlags parse_generate_flags(Door door, int argc, char** argv);

/// The one prompt that the flags and stdin amount to; nothing means the REPL.
std::optional<std::string> whole_prompt(const GenerateFlags& flags, Door door);

}  // namespace mlxcel::app
