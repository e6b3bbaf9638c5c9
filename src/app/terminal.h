// What a terminal needs: is it one, Ctrl-C as a flag, a progress bar on stderr.
// Thread: main; the interrupt flag may be read anywhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mlxcel::app {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
/// A terminal, and no dumb one (TERM=dumb): escape sequences mean something to it.
bool understands_sequences(bool is_terminal);
/// Colours and styles: the same, and NO_COLOR is not set.
bool styled(bool is_terminal);
/// Progress bars on stderr: a terminal, and none of MLXCEL_NO_PROGRESS, NO_COLOR, CI=true.
bool progress_wanted();

/// While alive, the first SIGINT sets a flag (read and cleared by take()); a second one before the flag was
/// taken kills the process as usual.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  static bool pending();
  static bool take();
};

/// A bar on stderr with share, rate and time left; silent where stderr is no terminal, or with
/// MLXCEL_NO_PROGRESS, NO_COLOR or CI=true.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  void update(std::size_t done, std::size_t total);

 private:
  std::string title_;
  bool shown_ = false;
  bool enabled_;
  std::chrono::steady_clock::time_point begun_, drawn_{};
};

/// Text that somebody else wrote, for a terminal: control characters other than line breaks and tabs become
/// their pictures, since sequences in an answer could move the cursor, set titles or ask for more.
std::string for_terminal(std::string_view text);

/// "98.4 MB", "1.2 GB" (powers of ten, as file managers show them).
std::string human_bytes(std::uintmax_t bytes);

}  // namespace mlxcel::app
