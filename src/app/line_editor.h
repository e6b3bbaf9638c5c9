// libedit behind the little the REPL needs: a line with history and editing. Ctrl-C is a key here, not a
// signal; what is pasted (a terminal's bracketed paste) is taken as it is, line breaks included.
// Owner: the REPL, one a process. Thread: main.
#pragma once

#include <histedit.h>

#include <optional>
#include <string>

namespace mlxcel::app {

class LineEditor {
 public:
  /// Before the process has a second thread: a window that changes is looked at where a line begins, not when
  /// the signal comes. libedit draws in its handler, in the midst of its own drawing, and that crashed.
  static void keep_window_changes();

  LineEditor();  // reads the history file, unless MLXCEL_NO_HISTORY is set
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// A line without its newline (inside it only where lines were pasted); nothing at the end of input or for
  /// Ctrl-C on an empty line. Ctrl-C elsewhere drops the line and gives an empty one.
  std::optional<std::string> read(const char* prompt);
  /// Also writes the history file (mode 0600): a window may be closed at any time.
  void remember(const std::string& line);

 private:
  static LineEditor* self(EditLine* edit);
  static char* prompt(EditLine* edit);
  static unsigned char interrupt(EditLine* edit, int);
  static unsigned char paste(EditLine* edit, int);
  void save();

  EditLine* edit_;
  History* history_;
  std::string file_;
  const char* prompt_ = "";
  const bool pastes_;  // the terminal marks what is pasted
  bool interrupted_ = false, left_ = false;
};

}  // namespace mlxcel::app
