// The variables that every command with a model reads (docs: environment): what is wrong with one, and which
// of those that are set mean nothing to this build. Thread: main.
#pragma once

#include <string>
#include <vector>

namespace mlxcel::app {

/// UsageError naming the variable, its value and what is accepted; what they set for the process is set.
void check_environment();
/// A line for each variable that is set and not followed: a device, or a fast path, that this build lacks.
std::vector<std::string> environment_notes();
/// Set, and no word that means off.
bool variable_is_on(const char* name);

}  // namespace mlxcel::app
