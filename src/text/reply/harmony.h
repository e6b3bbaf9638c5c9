// Answers made of messages with a header. GPT-OSS: a channel and perhaps a recipient; analysis is thought,
// final is content, commentary to a function is a call. Muse: a recipient; self is thought, user is content,
// and what goes to a tool is a call in a frame of its own. Thread: any one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/reply/call_splitter.h"

namespace mlxcel {

class HarmonySplitter {
 public:
  /// `framed`: calls are told by their frames, which `calls` reads; else by the header.
  HarmonySplitter(std::string_view prompt_tail, bool with_calls, ThoughtMode mode, CallSplitter& calls,
                  bool framed);
  void push(std::string_view text, std::vector<ReplyPiece>& out);
  void finish(bool whole, std::vector<ReplyPiece>& out);
  bool in_thought() const { return state_ == State::body && channel_ == "analysis" && recipient_.empty(); }
  bool unparsed() const { return unparsed_; }
  /// What the model would write to end its thought and begin the answer.
  std::string thought_end() const;

 private:
  enum class State { header, body };
  void advance(bool last, bool whole, std::vector<ReplyPiece>& out);
  void enter(std::string_view header);
  void body(std::string_view text, std::vector<ReplyPiece>& out);
  void leave(bool complete, std::vector<ReplyPiece>& out);
  std::string call_name() const;
  bool is_call() const { return with_calls_ && !framed_ && !recipient_.empty(); }

  const bool with_calls_, framed_;
  const ThoughtMode mode_;
  CallSplitter& calls_;
  State state_ = State::header;
  std::string buffer_, channel_, recipient_, arguments_;
  bool unparsed_ = false;
};

}  // namespace mlxcel
