// A line of the log as text, with as much in front of it as flags want. Thread: any. Failure: none.
#pragma once

#include <string>
#include <string_view>

#include "base/log.h"

namespace mlxcel::app {

struct LogStyle {
  bool timestamps = true, prefix = true;  // the prefix: level and target
  bool colors = false;                    // of the level, for a terminal
};

/// `line` is what the log hands to its sink: time, level, target, text.
std::string text_log_line(log::Level level, std::string_view line, const LogStyle& style);

}  // namespace mlxcel::app
