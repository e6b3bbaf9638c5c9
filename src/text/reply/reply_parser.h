// Splits an answer, as it streams, into thought, content and tool calls. No mark of the wire format gets out;
// what might be the beginning of one is held back. A call begins once its tool and the first of its arguments
// are known, where these are strict JSON, else once it is whole; a call that cannot be read, even with its
// escapes and brackets mended, stays content. Owner: one per choice. Thread: any one. Failure: none.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/reply/reply_format.h"

namespace mlxcel {

struct ReplyPiece {
  /// Of a call: its head, one or more pieces of its arguments, then `call` with all of it.
  enum class Kind { content, thought, call_open, arguments, call };
  Kind kind = Kind::content;
  std::string text;  // content, thought, arguments
  int index = 0;     // of a call: its number in the answer
  ToolCall call;     // call_open: name and id, which is never empty; call: the arguments too
};

enum class ThoughtMode { split, keep, both };  // away from the content; left in it with its marks; both

struct ReplyOptions {
  std::shared_ptr<const ReplyFormat> format;
  std::shared_ptr<const ToolTypes> tools;  // null or empty: calls are not looked for
  ThoughtMode thought = ThoughtMode::split;
  std::string prompt_tail = {};       // the end of the rendered prompt: a thought may be open there already
  std::string continued = {};         // the assistant's text that the answer goes on from
  std::string call_prefix = "call_";  // of generated ids
};

class ReplyParser {
 public:
  explicit ReplyParser(ReplyOptions options);
  ~ReplyParser();
  ReplyParser(ReplyParser&&) noexcept;

  std::vector<ReplyPiece> push(std::string_view text);
  /// The end. `whole`: the model ended by itself, so missing brackets may be added.
  std::vector<ReplyPiece> finish(bool whole);

  bool in_thought() const;
  std::string close_mark() const;  // of the thought it is in; empty for none
  /// What the model would have to write to end the thought it is in.
  std::string thought_end() const;
  int calls() const;
  bool unparsed() const;  // something looked like a call and was none: worth a warning

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
