// Server-sent events: one event of data, the comment that keeps a silent stream alive, OpenAI's last event.
#pragma once

#include <string>
#include <string_view>

namespace mlxcel {

/// `json` must be one line, as JsonWriter prints it.
inline std::string sse_event(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 8);
  return out.append("data: ").append(json).append("\n\n");
}
/// With a name, as Anthropic's and Responses' streams have it.
inline std::string sse_named_event(std::string_view name, std::string_view json) {
  std::string out;
  out.reserve(json.size() + name.size() + 18);
  return out.append("event: ").append(name).append("\ndata: ").append(json).append("\n\n");
}
inline constexpr std::string_view kSsePing = ": ping\n\n";
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace mlxcel
