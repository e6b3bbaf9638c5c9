// A chat as a file: a JSON list of {"role", "content"}. Thread: main. Failure: Error naming what was wrong.
#pragma once

#include <string>
#include <vector>

#include "app/conversation.h"

namespace mlxcel::app {

/// An earlier file stays as it is until the new one is whole; a device or pipe is written to.
void write_transcript(const std::string& path, const std::vector<ChatMessage>& messages);
/// At most 64 MiB; roles are system, user and assistant.
std::vector<ChatMessage> read_transcript(const std::string& path);

}  // namespace mlxcel::app
