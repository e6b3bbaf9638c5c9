// POST /v1/chat/completions: the request as a struct, the answer and its stream chunks as text.
// Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/answer.h"
#include "api/openai/sampling_fields.h"

namespace mlxcel::openai {

struct ChatRequest {
  std::string model;
  std::string messages_json;          // normalised: what the chat template sees
  size_t message_count = 0;
  bool last_is_assistant = false;     // a prefix to go on from, where the server or the request says so
  std::string last_content;           // of that assistant turn, for `echo`
  std::optional<bool> add_generation_prompt, continue_final_message;
  std::string template_kwargs_json;   // object or empty
  bool echo = false;
  std::optional<int> max_tokens;
  int n = 1;
  int logprobs = -1;                  // -1: none; k: that many rivals
  SamplingFields sampling;
  StreamFields stream;
  EchoedFields echoed;
  std::optional<int> ping_interval;   // seconds, -1 off
  std::vector<std::string> ignored;   // names nobody knows
};

ChatRequest parse_chat(std::string_view body, const Bounds& bounds);

struct ChatChoice {
  int index = 0;
  std::string content;
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
  std::string warnings_json;            // empty: none
};
std::string print_chat(const ChatAnswer& answer);

/// One chunk of a stream; `usage_null` where the request asked for a usage chunk at the end.
struct ChatChunk {
  int index = 0;
  bool role = false;                    // the first of a choice: {"role": "assistant", "content": ""}
  std::string content = {};             // with neither role, content nor finish: an empty delta
  const std::vector<TokenScore>* logprobs = nullptr;
  std::string finish_reason = {};       // empty: null
  const TimingFigures* timings = nullptr;
  std::string warnings_json = {};
};
std::string print_chat_chunk(const Identity& identity, const ChatChunk& chunk, bool usage_null);
std::string print_chat_usage_chunk(const Identity& identity, const Usage& usage);

}  // namespace mlxcel::openai
