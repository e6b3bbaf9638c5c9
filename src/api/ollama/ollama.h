// Ollama's /api: chat, generate and embed as structs, their lines as text, and the lists of models.
// Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_spec.h"
#include "api/openai/answer.h"
#include "text/reply/tool_types.h"

namespace mlxcel::ollama {

struct Request : ChatSpec {
  std::string model;
  bool stream = true;
  bool empty = false;                // nothing to answer: the model is to be loaded, or unloaded
  std::optional<double> keep_alive;  // seconds; negative: stay
  int num_ctx = 0;                   // a window below the slot's; 0: the slot's
  // generate only
  bool raw = false;
  std::string prompt;
  std::optional<std::string> suffix;
  std::vector<int32_t> context;  // tokens of an earlier answer
};
Request parse_chat(std::string_view body, const openai::Bounds& bounds);
Request parse_generate(std::string_view body, const openai::Bounds& bounds);

struct EmbedRequest {
  std::string model;
  std::vector<std::string> inputs;
  bool truncate = true;
  int dimensions = 0;
  bool older = false;  // /api/embeddings: one prompt, one vector
  std::vector<std::string> ignored;
};
EmbedRequest parse_embed(std::string_view body, bool older);

struct Figures {  // nanoseconds
  int64_t total = 0, load = 0, prompt = 0, eval = 0;
  int prompt_count = 0, eval_count = 0;
};

/// One line of an answer; `figures` makes it the last.
struct Line {
  std::string model, created_at;
  bool chat = true;
  std::string text, thinking;
  std::vector<ToolCall> calls;
  const std::vector<openai::TokenScore>* scores = nullptr;
  std::string done_reason;
  const Figures* figures = nullptr;
  const std::vector<int32_t>* context = nullptr;
  std::string warnings_json = {};
};
std::string print_line(const Line& line);
std::string print_embed(const std::string& model, const std::vector<std::vector<float>>& vectors,
                        const Figures& figures, bool older);

struct ModelDetails {
  std::string name, format, family, parameter_size, quantization, digest, modified_at, expires_at;
  int64_t size = 0, context = 0;
};
std::string print_tags(const std::vector<ModelDetails>& models);
std::string print_ps(const std::vector<ModelDetails>& models);

struct ShownModel {
  ModelDetails details;
  std::string parameters, chat_template;
  std::vector<std::string> capabilities;
  std::vector<std::pair<std::string, std::string>> info;  // name, JSON
};
std::string print_show(const ShownModel& model);

/// RFC 3339 with nanoseconds, UTC.
std::string rfc3339(int64_t unix_nanoseconds);
/// Without a host before owner/name and without ":latest".
std::string plain_model_name(std::string_view name);
/// A Go duration ("5m", "1h30m", "-1s") or seconds as a number.
double parse_keep_alive(std::string_view text);

}  // namespace mlxcel::ollama
