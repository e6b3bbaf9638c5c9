// POST /v1/chat/completions: the request as a struct, the answer and its stream chunks as text.
// Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_spec.h"
#include "api/openai/answer.h"
#include "api/openai/sampling_fields.h"
#include "text/reply/tool_types.h"

namespace mlxcel::openai {

struct ChatRequest : ChatSpec {
  std::string model;
  size_t message_count = 0;
  bool echo = false;
  bool timings_per_token = false;  // of a stream
  bool reasoning_control = false;  // its thought may be ended from outside
  StreamFields stream;
  EchoedFields echoed;
};

ChatRequest parse_chat(std::string_view body, const Bounds& bounds);

struct ChatChoice {
  int index = 0;
  std::string content;
  std::string reasoning;  // empty: none
  std::vector<ToolCall> calls;
  std::string finish_reason;
  bool with_logprobs = false;
  std::vector<TokenScore> logprobs;
};

struct ChatAnswer {
  Identity identity;
  std::vector<ChatChoice> choices;
  Usage usage;
  TimingFigures timings;
  EchoedFields echoed;
  std::string warnings_json;  // empty: none
};
/// `alias`: the field that repeats reasoning_content; empty: none.
std::string print_chat(const ChatAnswer& answer, const std::string& alias = "reasoning");

/// One chunk of a stream; `usage_null` where the request asked for a usage chunk at the end.
struct ChatChunk {
  int index = 0;
  bool role = false;         // the first of a choice: {"role": "assistant", "content": ""}
  std::string content = {};  // with neither role, content nor finish: an empty delta
  std::string reasoning = {};
  const ToolCall* call = nullptr;  // the head of a call: id and name, arguments empty
  int call_index = 0;
  const std::string* arguments = nullptr;  // a piece of the arguments of call_index
  const std::vector<TokenScore>* logprobs = nullptr;
  std::string finish_reason = {};  // empty: null
  const TimingFigures* timings = nullptr;
  const PromptProgress* progress = nullptr;
  std::string warnings_json = {};
};
std::string print_chat_chunk(const Identity& identity, const ChatChunk& chunk, bool usage_null,
                             const std::string& alias = "reasoning");
std::string print_chat_usage_chunk(const Identity& identity, const Usage& usage,
                                   const TimingFigures& timings);

}  // namespace mlxcel::openai
