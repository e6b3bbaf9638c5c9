// Rows of the server's table on another subcommand's command line: spellings, bounds, variables and meaning
// are written once. Owner: one per command, alive until its words are parsed. Thread: main. Failure:
// UsageError, as the rows have it.
#pragma once

#include <CLI/CLI.hpp>

#include <initializer_list>
#include <string>
#include <vector>

#include "app/flags/flag.h"

namespace mlxcel::app {

struct SharedFlag {
  const char* name;                 // any spelling of the row
  const char* help = nullptr;       // where the server's words do not fit
  const char* spellings = nullptr;  // only these; null: all that the row has
};

class SharedFlags {
 public:
  SharedFlags(CLI::App& app, FlagState& state);
  ~SharedFlags();
  SharedFlags(const SharedFlags&) = delete;
  SharedFlags& operator=(const SharedFlags&) = delete;

  /// `group` empty: not shown by --help.
  void add(const char* group, std::initializer_list<SharedFlag> flags);

 private:
  struct Added {
    const Flag* row;
    const CLI::Option* option;
  };
  void read_variables();

  CLI::App& app_;
  FlagState& state_;
  std::vector<Added> added_;
};

/// The row behind an option that add() made; null for others.
const Flag* shared_row(const CLI::Option* option);
/// What an option takes, as help and completions show it: "N", "FILE", "md|json"; empty: nothing.
std::string value_of(const CLI::Option& option);
/// The row's variables that every command reads.
std::vector<std::string> own_variables(const Flag& row);
/// The row that has this spelling ("--top-k"); null: none.
const Flag* find_flag(const std::string& spelling);

}  // namespace mlxcel::app
