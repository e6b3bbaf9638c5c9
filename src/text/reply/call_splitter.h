// Content to content and calls; the second half of ReplyParser. Thread: any one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/reply/reply_format.h"
#include "text/reply/reply_parser.h"

namespace mlxcel {

using PieceSink = std::function<void(ReplyPiece)>;

/// Appends to the last piece where it is of the same kind.
void append_text(std::vector<ReplyPiece>& pieces, ReplyPiece::Kind kind, std::string_view text);

class CallSplitter {
 public:
  CallSplitter(std::vector<CallFrame> frames, std::vector<std::string> silent,
               std::shared_ptr<const ToolTypes> tools, std::string id_prefix);

  void push(std::string_view text, std::vector<ReplyPiece>& out) {
    buffer_ += text;
    advance(out, false, false);
  }
  void finish(bool whole, std::vector<ReplyPiece>& out) { advance(out, true, whole); }
  void add_call(ToolCall call, std::vector<ReplyPiece>& out);

  int calls() const { return calls_; }
  bool unparsed() const { return unparsed_; }

 private:
  void advance(std::vector<ReplyPiece>& out, bool last, bool whole);
  bool scan(std::vector<ReplyPiece>& out, bool last, bool whole);
  void content(std::string_view text, std::vector<ReplyPiece>& out);
  bool find_mark(size_t& at, int& which) const;

  const std::vector<CallFrame> frames_;
  const std::vector<std::string> silent_;
  const std::shared_ptr<const ToolTypes> tools_;
  const std::string id_prefix_;
  std::string buffer_;
  std::string blanks_;       // before something that may be a call
  int frame_ = -1;           // the one being read; the buffer begins with its mark
  size_t emitted_ = 0;       // of its calls
  size_t scanned_ = 0;       // bytes that the last attempt saw
  bool head_ = true;         // no content yet
  bool after_call_ = false;  // nothing but blanks since
  bool unparsed_ = false;
  int calls_ = 0;
  std::vector<std::string> ids_;
};

}  // namespace mlxcel
