// What a request says the answer must look like, and how its thoughts are treated. Thread: any.
// Failure: invalid_request naming the field.
#pragma once

#include <optional>
#include <string>

#include "api/chat_spec.h"
#include "api/json_node.h"

namespace mlxcel {

/// response_format, or the native spellings grammar and json_schema; two of them are refused.
OutputForm parse_output_form(const JsonNode& body);
/// {"type": "json_schema", …} under `node`; the schema may stand beside the type (Responses) or in
/// json_schema (chat).
OutputForm parse_format_object(const JsonNode& node);
/// A schema's text, bounded as every one of them (64 KiB).
std::string schema_text(const JsonNode& schema);
/// none, deepseek, deepseek-legacy, auto; empty where the request does not say.
std::string parse_reasoning_format(const JsonNode& body);
std::optional<int> parse_thought_budget(const JsonNode& body);

}  // namespace mlxcel
