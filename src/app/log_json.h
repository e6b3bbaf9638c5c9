// A line of the log as one JSON object, for --log-jsonl. Thread: any. Failure: none.
#pragma once

#include <string>
#include <string_view>

namespace mlxcel::app {

/// {"time", "level", "target", "message"}; the line of a request also gives its parts: request_id, route, and
/// every name=value. `line` is what the log hands to its sink, `level` the log's own word for it.
std::string json_log_line(std::string_view level, std::string_view line);

}  // namespace mlxcel::app
