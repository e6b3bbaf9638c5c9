// The chat in a terminal: line editing with history, slash commands, Ctrl-C stops an answer.
#pragma once

#include "app/conversation.h"

namespace mlxcel::app {

/// Runs until /bye, Ctrl-D or Ctrl-C at an empty prompt; returns the exit code.
int run_repl(Conversation& conversation, bool quiet);

}  // namespace mlxcel::app
