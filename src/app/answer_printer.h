// An answer as it streams to stdout: on a terminal Markdown coloured, thoughts dimmed and control characters
// shown as pictures; the plain bytes elsewhere. Owner: one per answer. Thread: any one.
#pragma once

#include <string>

#include "app/markdown.h"

namespace mlxcel::app {

class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool show_thoughts);
  void print(const std::string& piece, bool thought);
  /// Ends every style.
  void finish();

 private:
  void put(const std::string& text);

  bool show_thoughts_, terminal_, colours_;
  bool dim_ = false, thought_shown_ = false;
  MarkdownPainter painter_;
};

}  // namespace mlxcel::app
