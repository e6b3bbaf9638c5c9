// How the command line draws tokens: greedy unless the checkpoint or a flag says otherwise; and what an
// answer must look like. Thread: main. Failure: UsageError naming the flag.
#pragma once

#include <optional>
#include <string>

#include "app/flags/shared.h"
#include "checkpoint/config.h"
#include "sample/params.h"
#include "text/grammar/grammar.h"

namespace mlxcel::app {

/// Rows that say how tokens are drawn, under the heading "Sampling".
void add_sampling_flags(SharedFlags& flags);
/// One of these rows by its flag's name without dashes ("top_k", "repeat-penalty"); false: no such setting.
bool set_sampling(FlagState& state, const std::string& key, const std::string& value);
/// invalid_request for what the engine would refuse of every request, naming the flag at fault. `vocab_size`:
/// the most an int holds where no model is there yet.
void check_sampling(const SamplingParams& params, int vocab_size);
/// The checkpoint's generation_config first, then the flags.
SamplingParams sampling_params(const FlagState& state, const Config& generation_config);
/// The same, checked: invalid_request names the flag as it was typed, bad_checkpoint what generation_config
/// says.
SamplingParams checked_sampling(const FlagState& state, const Config& generation_config, int vocab_size);
struct GrammarFlags {
  std::string grammar, grammar_file, json_schema, json_schema_file, regex;
};
void add_grammar_flags(CLI::App& app, GrammarFlags& flags);
/// At most one of them; nothing where the answer is free.
std::optional<Constraint> constraint_of(const GrammarFlags& flags);

}  // namespace mlxcel::app
