// The command line described from the parser's own tables: the flag surface as JSON, shell completions, man
// pages. A flag added to a subcommand appears in all of them.
// Thread: main.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/commands.h"

namespace mlxcel::app {

struct FlagInfo {
  std::vector<std::string> longs, shorts;  // without dashes
  std::vector<std::string> env;            // variables
  std::string value;                       // "none", "one" or "list"
  std::string type;                        // "N", "PATH", …; empty for value-less flags
  std::string fallback;                    // default, as help shows it
  std::string group, about;
  std::vector<std::string> choices;
  std::string status = "supported";  // inert, refused
  bool hidden = false;
};

struct CommandInfo {
  std::string name, alias, about, examples;
  std::string positional, positional_about;  // empty: none
  std::vector<FlagInfo> flags;
};

CommandInfo describe(const Command& command);
/// "-n, --max-tokens": every spelling of a flag.
std::string dashed(const FlagInfo& flag, const char* separator);

/// For `--dump-flag-surface`; `program` is "mlxcel" or "mlxcel-server" (whose one command is the server).
std::string flag_surface(const std::string& program, std::span<const Command> commands);

enum class Shell { bash, zsh, fish };
std::string completion(Shell shell, std::span<const Command> commands);

/// roff: the program's page where `command` is null.
std::string man_page(std::span<const Command> commands, const Command* command);

/// man/man1/*.1 and the completions, under a share folder. Failure: internal naming the path.
void write_docs(std::span<const Command> commands, const std::filesystem::path& share);

}  // namespace mlxcel::app
