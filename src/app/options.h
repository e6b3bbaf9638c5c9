// Flags that several subcommands share, and how failures become exit codes.
// Thread: main. Failure: UsageError ends with exit code 2, any other Error with 1 (docs: cli exit codes).
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/rope_flags.h"
#include "engine/engine.h"
#include "hub/store.h"

namespace mlxcel::app {

/// A wrong command line: one diagnostic on stderr, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ctrl-C ended the command: guarded() lets the process die by that signal.
struct Interrupted {};

struct ModelFlags {
  std::string model;
  std::string models_dir, revision, hf_file, hf_token;
  std::string surgery;  // file of load-time weight edits; else MLXCEL_SURGERY
  bool offline = false;
  bool fetch = true;  // download what is not here
  int context = 0;
  std::string kv_cache_mode = "fp16";
  int threads = 0;
  std::string cpu_precision;
  int prefill_chunk = 2048;
  RopeFlags rope;
  DiffusionFlags diffusion;
  bool no_warmup = false;
  bool quiet = false;
  bool estimate = false, force = false;  // the memory preflight; go on whatever it says
};

/// Where models come from: -m (positional too where `positional`), --models-dir, --revision, --hf-file,
/// --offline, --hf-token.
void add_source_flags(CLI::App& app, ModelFlags& flags, bool positional);
/// The reference checked for form only; a usage error never touches files of a model.
Reference checked_reference(const ModelFlags& flags);
/// The model's folder or file, downloaded where it is not here and that is allowed.
std::filesystem::path resolve(const ModelFlags& flags);
/// `base` with what the flags say.
EngineOptions engine_options(const ModelFlags& flags, EngineOptions base = {});
/// What is done to a checkpoint between opening and loading.
using CheckpointEdit = std::function<void(Checkpoint&)>;
/// --surgery or MLXCEL_SURGERY, read and checked; null where there is none. UsageError for a bad file.
CheckpointEdit surgery_edit(const ModelFlags& flags);
/// Before anything is fetched or loaded: no family of this build takes more than text. unsupported naming
/// flag and file.
void refuse_media(const char* flag, const std::vector<std::string>& paths);
/// Loads with a progress bar on a terminal, surgery and overrides of positions applied. `options.model` may
/// be the resolved path already.
std::unique_ptr<Engine> load_engine(const ModelFlags& flags, EngineOptions options);

/// "cpu avx2, 2 threads, high".
std::string device_label();
/// "mlxcel 0.1.0 (mlx 0.32.4, backends: cpu)".
std::string version_line();

/// Sets up `app` for one subcommand: strict options, last value wins, `--help`, examples at the end.
void configure(CLI::App& app, const std::string& examples);
/// Parses; --help prints and throws CLI::CallForHelp upward. Other parse errors become UsageError.
/// llama.cpp's spellings with one dash (-sys, -jf, -pg, …) are read where the subcommand has the long flag.
void parse(CLI::App& app, int argc, char** argv);
/// What parse() makes of `spelling`, a word with one dash and several letters: the long flag of `app`.
void one_dash_spelling(const CLI::App& app, const std::string& spelling, const std::string& flag);
/// A whole text file of at most `limit` bytes; UsageError naming the flag otherwise.
std::string text_file(const std::string& path, const char* flag, size_t limit);
/// While alive, parse() hands the subcommand's flags to `sink` and ends the subcommand (completions, man
/// pages).
class FlagProbe {
 public:
  explicit FlagProbe(std::function<void(CLI::App&)> sink);
  ~FlagProbe();
  FlagProbe(const FlagProbe&) = delete;
  FlagProbe& operator=(const FlagProbe&) = delete;
  struct Done {};  // thrown by parse()
};
/// Runs a subcommand and turns exceptions into exit codes.
int guarded(const std::string& program, const std::function<int()>& body);

}  // namespace mlxcel::app
