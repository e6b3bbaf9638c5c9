// Which marks a model puts around its thoughts and its tool calls, found in the text of its chat template.
// Owner: shared, immutable. Thread: any.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/reply/call_formats.h"

namespace mlxcel {

struct ThoughtMarks {
  std::string open, close;
};

/// A call as it is written when a grammar forces it: `before` name `between` arguments `after`.
struct CallWriting {
  std::string before, between, after;
  std::string separator = "\n";  // between two calls
  bool several = true;           // more than one can stand in a row
  // How a call that nobody forces is told: by this, with which `before` begins; or, where it is empty, by the
  // first character of the answer. Neither: the model's own way begins otherwise.
  std::string opening = {};
  bool at_head = false;
};

struct ReplyFormat {
  std::string name;  // "hermes", "mistral", …: logs, /props, tests
  std::vector<ThoughtMarks> thoughts;
  std::vector<CallFrame> frames;
  std::vector<std::string>
      marks;  // tokens that are shown to the parser though the vocabulary calls them special
  std::vector<std::string> silent;  // never shown to anybody: wrappers around the answer
  bool harmony = false;             // GPT-OSS: channels instead of marks
  bool native_tools = false;        // the template renders tools itself
  CallWriting writing;
};

/// `template_source` may be empty: thoughts in <think>, calls as Hermes writes them.
std::shared_ptr<const ReplyFormat> reply_format(std::string_view template_source);

/// The names that reply_format may give, for tests.
std::vector<std::string> reply_format_names();

}  // namespace mlxcel
