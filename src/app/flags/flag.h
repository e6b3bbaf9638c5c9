// The server's flags as one table: from it come parsing, environment aliases, help, completion, the
// documentation and a test. A flag works, takes a value without effect, or stops start-up with a reason; none
// is silently ignored. Owner: static. Thread: main. Failure: UsageError naming flag, value and what is
// accepted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/serve_options.h"

namespace mlxcel::app {

/// What flags write; checked together once all are read.
struct FlagState {
  ServeFlags serve;
  std::vector<std::string> api_keys, api_key_files, reverse_prompts;
  std::string alias, tags, allowed_origins, allowed_hosts, chat_template_file, hf_repo, kv_type_k, kv_type_v;
  std::string lang_bias, lang_bias_file, lookup_policy;
  double timeout = 3600, decode_timeout = 600;
  std::optional<long long> seed;
  bool escapes = true;  // in stop strings and the budget's message
  bool cache_list = false, completion = false, markdown = false, help = false, version = false;
  std::vector<std::string> notes;  // accepted without effect, to be said at start-up
};

struct Flag {
  enum class Kind { value, list, toggle };
  using Apply = std::function<void(FlagState&, const Flag&, const std::string&)>;

  std::string names;  // "-c,--ctx-size"; "!" before a name that switches off
  std::string env;    // "LLAMA_ARG_CTX_SIZE,MLXCEL_…", the canonical one first; empty: none
  std::string group;  // empty: hidden from help
  Kind kind = Kind::value;
  std::string type;  // of the value, for help
  std::string help;
  Apply apply;                       // toggles get "true" or "false"
  bool env_adds = false;             // the environment is added to the command line, not replaced by it
  const char* status = "supported";  // inert, refused: as the flag surface says it

  std::string name() const;                                     // the first long spelling
  std::vector<std::pair<std::string, bool>> spellings() const;  // and whether each switches on
};

const std::vector<Flag>& server_flags();
/// Rows that only the other commands have.
const std::vector<Flag>& offline_flags();

/// Command line and environment into the state. Later flags win over earlier ones, both over the environment.
void read_flags(const std::vector<Flag>& flags, const std::vector<std::string>& words, FlagState& state);
/// The row's MLXCEL_ variables (and those the offline commands share with the server), where one is set.
void read_own_variable(const Flag& flag, FlagState& state);
/// Flags that go together (cache types, drafts, adapters), checked and settled.
void settle_engine_flags(FlagState& state);
/// What --lang-bias* amount to, checked.
void read_language_bias(FlagState& state);
/// The usual escapes (\n \t \r \\ and quotes), since a shell makes line breaks hard to write.
std::string unescaped(const std::string& text);
std::string flags_help(const std::vector<Flag>& flags, const std::string& program);
std::string flags_markdown(const std::vector<Flag>& flags);
std::string flags_completion(const std::vector<Flag>& flags, const std::string& program);

// How a value is read.
Flag::Apply integer(long long low, long long high, std::function<void(FlagState&, long long)> set);
Flag::Apply real(double low, double high, std::function<void(FlagState&, double)> set);
Flag::Apply text(std::function<void(FlagState&, const std::string&)> set);
Flag::Apply word(std::vector<std::string> words, std::function<void(FlagState&, const std::string&)> set);
/// Bytes, also as 8G, 1.5M, 512k; none is 0.
Flag::Apply byte_size(std::function<void(FlagState&, size_t)> set);
Flag::Apply onoff(std::function<void(FlagState&, bool)> set);
/// Only these values pass, without effect; the reason says where to turn instead. "*" is any value.
Flag::Apply inert(std::vector<std::string> values, std::string reason);
/// As inert, and noted at start-up.
Flag::Apply noted(std::string why);
Flag::Apply refused(std::string reason);

// The parts of the table.
void add_model_flags(std::vector<Flag>& flags);
void add_router_flags(std::vector<Flag>& flags);
void add_network_flags(std::vector<Flag>& flags);
void add_run_flags(std::vector<Flag>& flags);
void add_load_flags(std::vector<Flag>& flags);
void add_engine_flags(std::vector<Flag>& flags);
void add_answer_flags(std::vector<Flag>& flags);
void add_side_flags(std::vector<Flag>& flags);
void add_foreign_flags(std::vector<Flag>& flags);

}  // namespace mlxcel::app
