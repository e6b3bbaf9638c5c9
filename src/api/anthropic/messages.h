// POST /v1/messages and /v1/messages/count_tokens: the request as a chat spec, the answer and its events as
// text. Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat_spec.h"
#include "text/reply/tool_types.h"

namespace mlxcel::anthropic {

struct MessageRequest : ChatSpec {
  std::string model;
  bool stream = false;
  std::string service_tier;
};
/// `counting`: max_tokens is not asked for.
MessageRequest parse_messages(std::string_view body, const openai::Bounds& bounds, bool counting);

struct Usage {
  int input_tokens = 0;  // without the cached ones
  int cached_tokens = 0;
  int output_tokens = 0;
};

struct Block {
  enum class Kind { thinking, text, tool_use };
  Kind kind = Kind::text;
  std::string text;
  ToolCall call;
};

struct Message {
  std::string id, model;
  std::vector<Block> blocks;
  std::string stop_reason;    // empty: not yet
  std::string stop_sequence;  // empty: none
  Usage usage;
  std::string warnings_json;
};
std::string print_message(const Message& message);

// Events of a stream, name and data together.
std::string event_message_start(const Message& message);
std::string event_ping();
std::string event_block_start(int index, const Block& block);
std::string event_text(int index, Block::Kind kind, const std::string& text);
std::string event_input(int index, const std::string& json);
std::string event_signature(int index);
std::string event_block_stop(int index);
std::string event_message_delta(const Message& message);
std::string event_message_stop();

/// length, stop, tool_calls and a stop string, in Anthropic's words.
std::string stop_reason(const std::string& finish, const std::string& stop_string);

}  // namespace mlxcel::anthropic
