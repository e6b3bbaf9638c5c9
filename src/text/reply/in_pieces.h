// For tests: a text read in pieces of one size, and what came of it. Defined in formats_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "text/reply/reply_parser.h"

namespace mlxcel::testing {

/// get_weather(city, days, exact, at) and search(query, limit).
extern const char* const kTools;

struct ReadReply {
  std::string content, thought;
  std::vector<ToolCall> calls;
  bool unparsed = false;
};

/// Fails the test where streamed pieces do not join to the calls, or arguments are no object.
ReadReply parse(const std::string& source, const std::string& text, size_t size, const std::string& tail = "",
                ThoughtMode mode = ThoughtMode::split, bool whole = true, const char* tools = kTools);

}  // namespace mlxcel::testing
