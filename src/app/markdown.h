// Colours Markdown as it streams to a terminal: headings, emphasis, code. Only escape sequences are added;
// without them the bytes are the text's own. Owner: one per answer. Thread: any one.
#pragma once

#include <string>
#include <string_view>

namespace mlxcel::app {

class MarkdownPainter {
 public:
  /// What may be printed now; a marker that is not whole yet is held back.
  std::string push(std::string_view text);
  /// The rest, with every style ended.
  std::string finish();

 private:
  void take(char c, std::string& out);
  void marker(std::string& out);
  void style(std::string& out);
  void end_line(std::string& out);

  std::string held_;         // a run of one marker character
  std::string shown_;        // the escape sequence in force
  bool line_start_ = true;   // nothing but blanks so far
  bool fence_line_ = false;  // the rest of a ``` line
  bool block_ = false;       // inside a fenced block
  bool heading_ = false, bold_ = false, code_ = false;
  size_t ticks_ = 0;  // of the code span that is open
  char before_ = '\n', after_marker_ = 0;
};

}  // namespace mlxcel::app
