#include "app/download_bars.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "app/say.h"
#include "app/terminal.h"

namespace mlxcel::app {
namespace {

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

std::string time_text(double seconds) {
  if (!(seconds >= 0) || seconds > 359999) return "--:--";
  const int whole = static_cast<int>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

/// One line no wider than the terminal: the name is what gives way.
std::string bar_line(const std::string& name, std::uint64_t done, std::uint64_t total,
                     const std::string& tail, int width) {
  const int name_width = std::clamp(width / 3, 8, 40);
  std::string shown = name;
  if (static_cast<int>(shown.size()) > name_width)
    shown = "…" + shown.substr(shown.size() - static_cast<size_t>(name_width - 1));
  const int pad = name_width - (shown.starts_with("…") ? name_width : static_cast<int>(shown.size()));
  const double part = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 0;
  const std::string numbers = fmt::format(" {:3.0f}% {}", part * 100, tail);
  const int room = width - name_width - static_cast<int>(numbers.size()) - 4;
  std::string bar;
  if (room >= 6) {
    const int filled = static_cast<int>(part * room);
    bar = " [" + std::string(static_cast<size_t>(filled), '#') +
          std::string(static_cast<size_t>(room - filled), '.') + "]";
  }
  return shown + std::string(static_cast<size_t>(std::max(0, pad)), ' ') + bar + numbers;
}

}  // namespace

DownloadBars::DownloadBars() : bars_(progress_wanted()), begun_(Clock::now()) {}
DownloadBars::~DownloadBars() { clear(); }

void DownloadBars::note(const std::string& text) {
  clear();
  say("{}\n", text);
  draw(true);
}

void DownloadBars::plan(const std::vector<File>& files) {
  files_ = files;
  running_.assign(files.size(), false);
  begun_ = Clock::now();
  before_ = 0;
  std::uint64_t total = 0;
  for (const File& file : files_) {
    before_ += file.done;
    total += file.size;
  }
  say("fetching {} file{}, {}{}\n", files.size(), files.size() == 1 ? "" : "s", human_bytes(total),
      before_ > 0 ? fmt::format(", {} of them here from an earlier try", human_bytes(before_)) : "");
}

void DownloadBars::progress(std::size_t index, std::uint64_t done) {
  files_[index].done = done;
  running_[index] = true;
  draw(false);
}

void DownloadBars::finished(std::size_t index) {
  files_[index].done = std::max(files_[index].done, files_[index].size);
  running_[index] = false;
  draw(true);
}

void DownloadBars::clear() {
  if (lines_ > 0) say("\r\033[{}A\033[J", lines_);
  lines_ = 0;
}

void DownloadBars::draw(bool always) {
  if (!bars_ || files_.empty()) return;
  const auto now = Clock::now();
  if (!always && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const int width = terminal_width() - 1;
  std::uint64_t done = 0, total = 0;
  std::string text;
  int lines = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    done += files_[i].done;
    total += std::max(files_[i].size, files_[i].done);
    if (!running_[i]) continue;
    text +=
        bar_line(files_[i].path, files_[i].done, files_[i].size, human_bytes(files_[i].size), width) + "\n";
    ++lines;
  }
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const double rate = seconds > 0.2 ? static_cast<double>(done - before_) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : -1;
  text +=
      bar_line("all", done, total,
               fmt::format("{}/s {} left", human_bytes(static_cast<std::uintmax_t>(rate)), time_text(left)),
               width) +
      "\n";
  clear();
  say("{}", text);
  lines_ = lines + 1;
}

}  // namespace mlxcel::app
