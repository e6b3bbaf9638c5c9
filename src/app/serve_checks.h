// Flags of the server that say who may come in and how chats are written: checked, and put where they belong.
// Thread: main. Failure: UsageError naming the flag.
#pragma once

#include <string>
#include <vector>

#include "app/flags/flag.h"

namespace mlxcel::app {

/// Items between commas, without the blanks around them; empty ones are dropped.
std::vector<std::string> split_commas(const std::string& list);
/// Keys, origins, hosts, certificates, the prefix of every path.
void check_access(ServeFlags& flags, const FlagState& raw);
/// --chat-template, its file and its variables.
void check_template(ServiceOptions& service, const FlagState& raw);

}  // namespace mlxcel::app
