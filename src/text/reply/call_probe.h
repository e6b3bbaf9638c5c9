// Where in a call's text its arguments begin, found before the call is whole. Depends on the text alone,
// never on the pieces it came in. Thread: any. Failure: a status.
#pragma once

#include <string>
#include <string_view>

#include "text/reply/call_formats.h"

namespace mlxcel {

struct CallProbe {
  enum class Status { need_more, found, none };
  Status status = Status::none;
  ToolCall head;         // name and, where the format has one, id
  size_t arguments = 0;  // offset of their brace
  size_t begun = 0;      // bytes of the text that show the beginning of the first value
};

/// Looks at `text`, a frame from its opening mark on; `from` is not 0 after calls of the frame that are done.
/// found: a tool that there is, followed by an object of arguments in strict JSON.
CallProbe probe_call(std::string_view text, size_t from, const CallFrame& frame, const ToolTypes& tools);

}  // namespace mlxcel
