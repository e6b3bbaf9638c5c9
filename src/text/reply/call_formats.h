// Tool calls as models write them: a frame is one way to begin a call and how to read on from there.
// Thread: any. Failure: a status, never an exception.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/reply/tool_types.h"

namespace mlxcel {

struct CallScan {
  enum class Status { need_more, done, rejected };
  Status status = Status::rejected;
  size_t used = 0;              // done: bytes of the whole frame; rejected: where it broke
  std::vector<ToolCall> calls;  // complete ones, also while more is needed
  size_t resume = 0;            // after the last of them
  bool repaired = false;
  // not done: the call that is being read, its arguments as far as they can be told without their last
  // brackets; no name: nothing can be told.
  ToolCall open = {};
  // Where a text goes on that is the last of `open`, and what may end it; npos: there is none.
  size_t growing = std::string::npos;
  std::vector<std::string> ends = {};
  bool waits = false;  // such a text begins with the next byte
};

/// How far the text goes: `last`: nothing follows; `whole`: and the model ended it itself, so that missing
/// brackets may be added (an answer cut by its limit is never completed for it).
struct CallContext {
  const ToolTypes& tools;
  bool last = false, whole = false;
};

struct CallFrame {
  std::string open;           // what begins it
  bool head_only = false;     // only at the head of the answer, before any text
  bool ends_thought = false;  // also closes a thought that nobody closed
  CallScan (*scan)(std::string_view text, const CallFrame& frame, const CallContext& context) = nullptr;
  std::string close = {};
  std::string inner = {};  // the format's own: a tag's prefix, a separator
  std::string inner2 = {};
};

/// Whether the end of `text` may be the beginning of `mark`.
size_t held_suffix(std::string_view text, std::string_view mark);
/// How much of an unfinished text value can be told: not what may belong to an end, nor a line break before
/// it, nor a part of a character. 0 where an end is in sight.
size_t told_of(std::string_view value, const std::vector<std::string>& ends);

// <tool_call> and its like: JSON, <function=…>, or name and <arg_key>, whichever follows.
CallScan scan_tagged(std::string_view text, const CallFrame& frame, const CallContext& context);
// A JSON array or object after the mark: Mistral's first form, Granite, Phi, Nemotron, Command-R, Apertus.
CallScan scan_json(std::string_view text, const CallFrame& frame, const CallContext& context);
// Mistral's second form: name[CALL_ID]id[ARGS]{…}.
CallScan scan_mistral(std::string_view text, const CallFrame& frame, const CallContext& context);
// Llama 3: <|python_tag|> or a bare object with "parameters"; several are separated by semicolons.
CallScan scan_llama(std::string_view text, const CallFrame& frame, const CallContext& context);
// <invoke name="…"><parameter name="…">…</parameter></invoke> in a wrapper; `inner` is the tags' prefix.
CallScan scan_invoke(std::string_view text, const CallFrame& frame, const CallContext& context);
// The same with the parameters' own names as tags, nested for lists and objects, and a token before every tag
// (`inner`): MiniMax M3.
CallScan scan_nested(std::string_view text, const CallFrame& frame, const CallContext& context);
// A section of calls, each with a header, a separator and JSON: Kimi K2 and DeepSeek.
CallScan scan_section(std::string_view text, const CallFrame& frame, const CallContext& context);
// call:name{key:value}: Gemma 4 and FunctionGemma.
CallScan scan_gemma(std::string_view text, const CallFrame& frame, const CallContext& context);
// [f(x=1), g(y="z")]: LFM2, Llama 4, Olmo.
CallScan scan_python(std::string_view text, const CallFrame& frame, const CallContext& context);
// Kimi K3: <|open|>call tool="…"<|sep|> … <|close|>call<|sep|>.
CallScan scan_xtml(std::string_view text, const CallFrame& frame, const CallContext& context);

}  // namespace mlxcel
