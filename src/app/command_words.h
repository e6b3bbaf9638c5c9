// The words of a command line beside what CLI11 makes of them: spellings it does not know, how each flag was
// typed, and what every value must be. Thread: main. Failure: UsageError naming the flag as it was typed.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace mlxcel::app {

/// Words with one dash and several letters become the long flag, where there is one; "--name=" becomes a name
/// and an empty value, for which CLI11 would take the next word. Remembers how each flag was spelled.
std::vector<std::string> command_words(const CLI::App& app, int argc, char** argv);
/// How a flag was typed, the last time; `name` (its first long spelling) where it was not.
std::string as_typed(const std::string& name);
/// A parser's message with flags as they were typed.
std::string with_typed_names(const CLI::App& app, std::string message);
/// Numbers are decimal digits without spaces; paths, references and the like are not empty. Rows of the
/// server's table read their numbers themselves.
void check_values(CLI::App& app);

}  // namespace mlxcel::app
