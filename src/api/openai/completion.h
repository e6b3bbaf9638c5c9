// POST /v1/completions: the request as a struct, the answer and its stream chunks as text.
// Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/chat_spec.h"
#include "api/openai/answer.h"
#include "api/openai/sampling_fields.h"

namespace mlxcel::openai {

/// Text to be encoded, or token ids to be used as they are.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;
  std::vector<std::string> prompt_paths;  // for messages: prompt, prompt[1]
  std::optional<std::string> suffix;      // text after the gap that is to be filled
  int max_tokens = 16;
  int n = 1;
  bool echo = false;
  bool timings_per_token = false;
  int logprobs = -1;
  SamplingFields sampling;
  OutputForm form;
  StreamFields stream;
  EchoedFields echoed;
  std::optional<int> ping_interval;
  std::vector<std::string> ignored;
};

CompletionRequest parse_completion(std::string_view body, const Bounds& bounds);

/// The legacy log-probabilities: one entry a token; the first token of an echoed prompt has none.
struct LegacyScore {
  TokenScore score;
  bool known = true;
  size_t offset = 0;  // characters before it in the text
};

struct CompletionChoice {
  int index = 0;
  std::string text;
  std::string finish_reason;  // empty: null (a chunk that is not the last)
  bool with_logprobs = false;
  std::vector<LegacyScore> logprobs;
};

struct CompletionAnswer {
  Identity identity;
  std::vector<CompletionChoice> choices;
  Usage usage;
  TimingFigures timings;
  std::string warnings_json = {};
};
std::string print_completion(const CompletionAnswer& answer);
std::string print_completion_chunk(const Identity& identity, const CompletionChoice& choice, bool usage_null,
                                   const TimingFigures* timings = nullptr,
                                   const std::string& warnings_json = {});
std::string print_completion_usage_chunk(const Identity& identity, const Usage& usage,
                                         const TimingFigures& timings);

}  // namespace mlxcel::openai
