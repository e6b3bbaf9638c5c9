// Content to content and calls; the second half of ReplyParser. Thread: any one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "text/reply/json_prefix.h"
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
  /// A whole call; ends the one that is open.
  void add_call(ToolCall call, std::vector<ReplyPiece>& out);
  /// A call may be beginning: what feed_call() gets are its arguments. Nothing is said before the first of
  /// them.
  void begin_call(ToolCall head);
  void feed_call(std::string_view arguments, std::vector<ReplyPiece>& out);
  /// No call after all. What was said of it is closed to be valid JSON, unless the answer was `cut`; false
  /// where nothing was.
  bool abandon_call(bool cut, std::vector<ReplyPiece>& out);

  bool knows(std::string_view tool) const { return tools_->knows(tool); }
  int calls() const { return calls_; }
  bool unparsed() const { return unparsed_; }

 private:
  void advance(std::vector<ReplyPiece>& out, bool last, bool whole);
  bool scan(std::vector<ReplyPiece>& out, bool last, bool whole);
  void content(std::string_view text, std::vector<ReplyPiece>& out);
  bool find_mark(size_t& at, int& which) const;
  void look_ahead(const CallFrame& frame, std::vector<ReplyPiece>& out);
  void tell_open(const CallScan& scan, std::vector<ReplyPiece>& out);
  void tell_more(std::vector<ReplyPiece>& out);
  std::string usable_id(const std::string& wanted);

  struct OpenCall {
    ToolCall head;  // the arguments are what has been said of them
    JsonPrefix json;
    bool begun = false;
    bool written = true;  // the text itself is the arguments' JSON; else scans tell what they are
    int index = 0;
  };

  const std::vector<CallFrame> frames_;
  const std::vector<std::string> silent_;
  const std::shared_ptr<const ToolTypes> tools_;
  const std::string id_prefix_;
  std::string buffer_;
  std::string blanks_;   // before something that may be a call
  int frame_ = -1;       // the one being read; the buffer begins with its mark
  size_t emitted_ = 0;   // of its calls
  size_t scanned_ = 0;   // bytes that the last attempt saw
  size_t resume_ = 0;    // after its calls
  bool probing_ = true;  // an open call may still be found in it
  size_t fed_ = 0;       // bytes of the buffer, or of the scan's arguments, that the open call has seen
  size_t growing_ = std::string::npos;  // the last scan's
  std::vector<std::string> ends_;
  bool waits_ = false;
  std::optional<OpenCall> open_;
  bool head_ = true;         // no content yet
  bool after_call_ = false;  // nothing but blanks since
  bool unparsed_ = false;
  int calls_ = 0;
  std::vector<std::string> ids_;
};

}  // namespace mlxcel
