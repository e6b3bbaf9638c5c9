// The parts that OpenAI's answers share: identity, usage, timings, log-probabilities.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/json_writer.h"

namespace mlxcel::openai {

struct Identity {
  std::string id;       // chatcmpl-…, cmpl-…
  int64_t created = 0;  // Unix seconds
  std::string model;
  std::string fingerprint;  // system_fingerprint
};

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int completion_tokens = 0;
  int reasoning_tokens = 0;
};
void print_usage(JsonWriter& out, const Usage& usage);

/// llama-server's figures of one answer.
struct TimingFigures {
  int cache_n = 0, prompt_n = 0, predicted_n = 0;
  double prompt_ms = 0, predicted_ms = 0;
  int draft_n = 0, draft_n_accepted = 0, draft_rounds = 0;  // shown where something was drafted
  std::string draft_kind = {};
};
void print_timings(JsonWriter& out, const TimingFigures& timings);

/// How far a prompt is: `processed` of its tokens, those of a kept prefix among them.
struct PromptProgress {
  int total = 0, cache = 0, processed = 0;
  double time_ms = 0;
};
/// The object of "prompt_progress".
void print_progress(JsonWriter& out, const PromptProgress& progress);

/// One token with its log-probability and its rivals; tokens are the bytes they stand for.
struct TokenScore {
  std::string bytes;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;  // descending
};

/// Bytes as a string that loses nothing to look at: text that is not UTF-8 is spelled \xe2\x82.
std::string printable_token(const std::string& bytes);
/// JSON has no infinity: OpenAI writes -9999 for a token that cannot occur.
float printable_logprob(float logprob);

/// [{"type", "message"}], the value of `warnings`.
std::string print_warning(const std::string& type, const std::string& message);
/// Two JSON objects as one, the second's names win; either may be empty text. Empty when both are.
std::string merge_objects(const std::string& below, const std::string& above);

/// {"content": [{token, logprob, bytes, top_logprobs}]}
void print_chat_logprobs(JsonWriter& out, const std::vector<TokenScore>& tokens);

}  // namespace mlxcel::openai
