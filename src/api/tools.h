// Tools as OpenAI's chat spells them, and the reply format's own instruction where a template cannot render
// them. Thread: any. Failure: invalid_request naming the field.
#pragma once

#include <string>

#include "api/chat_spec.h"
#include "api/json_node.h"

namespace mlxcel {

constexpr size_t kMaxTools = 128;

/// `tools`, `tool_choice`, `parallel_tool_calls` of a chat body; `functions` and `function_call` are refused.
void parse_tools(const JsonNode& body, ChatSpec& spec);
/// A name of 1 to 64 letters, digits, _ and -.
void check_tool_name(const std::string& name, const std::string& path);
/// After tools and choice are known: unknown names, a choice without tools, one tool left when it is named.
void settle_tools(ChatSpec& spec, const std::string& choice_path);
/// {"type": "function", "function": {name, description, parameters, strict}}; `strict` only where it is asked
/// for.
std::string print_function_tool(const std::string& name, const std::optional<std::string>& description,
                                const std::string& parameters_json, bool strict);
/// Such a list as a template sees it: without `strict`, which is said to the grammar alone.
std::string tools_as_shown(const std::string& tools_json);

/// A call's arguments where an object must stand: those of an answer that was cut are closed.
std::string whole_arguments(const std::string& arguments);

/// For a template that knows no tools: the tools as an instruction in the first system message (else the last
/// user message), calls in the history as <tool_call> text, results as <tool_response>. Both in Hermes' form.
std::string with_tool_instruction(const std::string& messages_json, const std::string& tools_json);
/// For a template that refuses or drops system turns in mid-conversation: each goes into the user turn after
/// it.
std::string with_folded_system(const std::string& messages_json);
/// For a template that cannot take a turn without text: null contents as "". Empty where there is none.
std::string with_text_contents(const std::string& messages_json);
/// The contents of system turns that come after another turn.
std::vector<std::string> late_system_texts(const std::string& messages_json);

}  // namespace mlxcel
