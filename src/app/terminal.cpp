#include "app/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "app/say.h"

namespace mlxcel::app {
namespace {

std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler needs a lock-free flag");

extern "C" void on_interrupt(int signal) {
  if (interrupts.fetch_add(1) == 0) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

bool set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

struct sigaction previous_action;

}  // namespace

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool understands_sequences(bool is_terminal) {
  const char* kind = std::getenv("TERM");
  return is_terminal && !(kind && std::string_view(kind) == "dumb");
}
bool styled(bool is_terminal) { return understands_sequences(is_terminal) && !set("NO_COLOR"); }

bool progress_wanted() {
  const char* ci = std::getenv("CI");
  return styled(stderr_is_terminal()) && !set("MLXCEL_NO_PROGRESS") &&
         !(ci && std::string_view(ci) == "true");
}

Interrupt::Interrupt() {
  interrupts = 0;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &previous_action);
}
Interrupt::~Interrupt() { ::sigaction(SIGINT, &previous_action, nullptr); }
bool Interrupt::pending() { return interrupts.load() > 0; }
bool Interrupt::take() { return interrupts.exchange(0) > 0; }

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), enabled_(progress_wanted()), begun_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (shown_) say("\r\033[K");
}

void ProgressBar::update(std::size_t done, std::size_t total) {
  if (!enabled_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  // A quick load shows nothing; a long one is redrawn ten times a second.
  if (now - begun_ < std::chrono::milliseconds(300)) return;
  if (shown_ && done < total && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  shown_ = true;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const double rate = static_cast<double>(done) / seconds;
  const int width = 28, filled = static_cast<int>(part * width);
  const double left = rate > 0 ? static_cast<double>(total - std::min(done, total)) / rate : 0;
  say("\r\033[K{} [{}{}] {:3.0f}%  {}/s  {:.0f} s left", title_, std::string(filled, '#'),
      std::string(width - filled, '.'), part * 100, human_bytes(static_cast<std::uintmax_t>(rate)), left);
}

std::string for_terminal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (c == '\r') continue;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += "\xE2\x90";  // U+2400 and on; U+2421 is the picture of DEL
      out += static_cast<char>(c == 0x7f ? 0xA1 : 0x80 + c);
    } else if (c == 0xC2 && next >= 0x80 && next < 0xA0) {
      out += "\xEF\xBF\xBD";  // C1 controls have no pictures
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string human_bytes(std::uintmax_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000 * 1000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1000ull * 1000 * 1000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

}  // namespace mlxcel::app
