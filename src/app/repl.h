// The chat in a terminal: line editing with history, slash commands, Ctrl-C stops an answer.
#pragma once

#include "app/conversation.h"
#include "app/generate_flags.h"

namespace mlxcel::app {

/// Runs until /bye, Ctrl-D or Ctrl-C at an empty prompt; returns the exit code.
int run_repl(const Engine& engine, Conversation& conversation, GenerateFlags& flags);

}  // namespace mlxcel::app
