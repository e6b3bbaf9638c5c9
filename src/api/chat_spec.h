// One chat request, whatever API it came through: what the template sees, how to draw, what may be called.
// Owner: value. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/openai/sampling_fields.h"

namespace mlxcel {

/// What is said beside an answer that is otherwise fine.
struct Warning {
  std::string type, message;
};
/// [{"type", "message"}]; empty text for none.
std::string print_warnings(const std::vector<Warning>& warnings);

enum class ToolChoice { automatic, none, required, named };

/// What the answer must look like; `source` is JSON for a schema, else text. Kinds as in features.md 6.
struct OutputForm {
  enum class Kind { free, json_object, json_schema, regex, gbnf, lark };
  Kind kind = Kind::free;
  std::string source;
  std::string param;  // the field it came from
  bool strict = false;
};

struct ChatSpec {
  std::string messages_json;  // normalised to OpenAI's form
  std::string messages_param = "messages";
  std::string tools_json;  // OpenAI's form; empty: none
  std::vector<std::string> tool_names;
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string named_tool;
  bool parallel_calls = true;
  bool last_is_assistant = false;  // a prefix to go on from, where the server or the request says so
  std::string last_content;        // of that turn
  std::optional<bool> add_generation_prompt, continue_final_message;
  std::string template_kwargs_json;   // object or empty
  std::string reasoning_format;       // empty: the server's
  std::optional<int> thought_budget;  // tokens
  OutputForm form;
  std::optional<int> max_tokens;
  int n = 1;
  int logprobs = -1;  // -1: none; k: that many rivals
  openai::SamplingFields sampling;
  std::vector<Warning> warnings;
  std::optional<int> ping_interval;  // seconds, -1 off
  std::vector<std::string> ignored;  // names nobody knows
};

}  // namespace mlxcel
