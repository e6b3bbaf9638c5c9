#include "app/answer_printer.h"

#include <cstdio>

#include "app/terminal.h"

namespace mlxcel::app {

AnswerPrinter::AnswerPrinter(bool show_thoughts)
    : show_thoughts_(show_thoughts), terminal_(stdout_is_terminal()), colours_(styled(terminal_)) {}

void AnswerPrinter::put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void AnswerPrinter::print(const std::string& piece, bool thought) {
  if (thought && !show_thoughts_) return;
  if (colours_ && thought != dim_) {
    put(thought ? "\033[2m" : "\033[0m");
    dim_ = thought;
  }
  // The answer begins on a line of its own.
  if (!thought && thought_shown_) put("\n");
  thought_shown_ = thought;
  const std::string shown = terminal_ ? for_terminal(piece) : piece;
  put(colours_ && !thought ? painter_.push(shown) : shown);
}

void AnswerPrinter::finish() {
  put(painter_.finish());
  if (dim_) put("\033[0m");
  dim_ = false;
}

}  // namespace mlxcel::app
