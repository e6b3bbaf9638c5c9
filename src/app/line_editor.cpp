#include "app/line_editor.h"

#include <langinfo.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "app/terminal.h"
#include "hub/store.h"

namespace mlxcel::app {
namespace {

constexpr int kHistoryLines = 1000;
constexpr size_t kMostPasted = size_t{1} << 20;  // characters
constexpr std::wstring_view kPasteEnd = L"\033[201~";

/// What may stand in a line: tabs and line breaks are all that is left of control characters. A break may be
/// CR, LF or both; a terminal in libedit's mode (icrnl and inlcr) gives the two of CR LF exchanged.
std::wstring printable(const std::wstring& text) {
  constexpr std::wstring_view kBreaks = L"\r\n";
  const auto breaks = [&](size_t i) { return i < text.size() && kBreaks.find(text[i]) != kBreaks.npos; };
  std::wstring out;
  for (size_t i = 0; i < text.size(); ++i) {
    const wchar_t c = text[i];
    if (breaks(i)) {
      if (breaks(i + 1) && text[i + 1] != c) ++i;
      out += L'\n';
    } else if (c == L'\t' || (c >= 0x20 && c != 0x7f)) {
      out += c;
    }
  }
  while (!out.empty() && out.back() == L'\n') out.pop_back();
  return out;
}

}  // namespace

void LineEditor::keep_window_changes() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGWINCH);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

LineEditor::LineEditor() : pastes_(understands_sequences(stdout_is_terminal())) {
  std::setlocale(LC_CTYPE, "");
  // Text here is UTF-8 whatever the locale says; without it wide characters could not be edited.
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
  edit_ = el_init("mlxcel", stdin, stdout, stderr);
  history_ = history_init();
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistoryLines);
  history(history_, &event, H_SETUNIQUE, 1);
  el_set(edit_, EL_CLIENTDATA, this);
  el_set(edit_, EL_PROMPT, &LineEditor::prompt);
  el_set(edit_, EL_EDITOR, "emacs");
  el_set(edit_, EL_SIGNAL, 1);  // the terminal is put right where the program is ended
  el_set(edit_, EL_HIST, history, history_);
  el_set(edit_, EL_ADDFN, "mlxcel-interrupt", "clears the line, or leaves", &LineEditor::interrupt);
  el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
  el_set(edit_, EL_BIND, "^C", "mlxcel-interrupt", nullptr);
  el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(edit_, EL_ADDFN, "mlxcel-paste", "takes what is pasted as it is", &LineEditor::paste);
  el_set(edit_, EL_BIND, "\033[200~", "mlxcel-paste", nullptr);
  if (!std::getenv("MLXCEL_NO_HISTORY")) {
    // The file that a link means; a pipe or a folder of that name keeps nothing, and is not waited for.
    std::error_code error;
    const auto file = std::filesystem::weakly_canonical(cache_root() / "history", error);
    const bool there = !error && std::filesystem::exists(file, error);
    if (!error && (!there || std::filesystem::is_regular_file(file, error))) file_ = file.string();
    if (there && !file_.empty()) history(history_, &event, H_LOAD, file_.c_str());
  }
}

LineEditor::~LineEditor() {
  history_end(history_);
  el_end(edit_);
}

std::optional<std::string> LineEditor::read(const char* prompt_text) {
  prompt_ = prompt_text;
  interrupted_ = left_ = false;
  int count = 0;
  if (pastes_) std::fputs("\033[?2004h", stdout);
  el_resize(edit_);  // it may have changed since the last line
  const char* text = el_gets(edit_, &count);
  if (pastes_) std::fputs("\033[?2004l", stdout);
  std::fflush(stdout);
  if (left_ || (!interrupted_ && (text == nullptr || count <= 0))) return std::nullopt;
  if (interrupted_ || text == nullptr) return std::string();
  std::string line(text, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

void LineEditor::remember(const std::string& line) {
  if (line.find_first_not_of(" \t") == std::string::npos) return;
  HistEvent event;
  history(history_, &event, H_ENTER, line.c_str());
  save();
}

LineEditor* LineEditor::self(EditLine* edit) {
  void* data = nullptr;
  el_get(edit, EL_CLIENTDATA, &data);
  return static_cast<LineEditor*>(data);
}
char* LineEditor::prompt(EditLine* edit) { return const_cast<char*>(self(edit)->prompt_); }

unsigned char LineEditor::interrupt(EditLine* edit, int) {
  LineEditor* editor = self(edit);
  const LineInfo* info = el_line(edit);
  (info->lastchar == info->buffer ? editor->left_ : editor->interrupted_) = true;
  std::fputs("^C\n", stdout);
  el_set(edit, EL_UNBUFFERED, 0);
  return CC_EOF;
}

// The terminal has said that what follows, up to its own mark, was pasted and not typed.
unsigned char LineEditor::paste(EditLine* edit, int) {
  std::wstring text;
  wchar_t c = 0;
  bool whole = true;
  while (!text.ends_with(kPasteEnd)) {
    if (el_wgetc(edit, &c) != 1) return CC_EOF;
    if (text.size() >= kMostPasted) {
      whole = false;
      text.erase(0, text.size() - kPasteEnd.size());
    }
    text += c;
  }
  if (!whole) {
    std::fprintf(stderr, "\nnothing pasted: over %zu characters; give them as a file (-f)\n", kMostPasted);
    return CC_REDISPLAY;
  }
  text.resize(text.size() - kPasteEnd.size());
  text = printable(text);
  if (!text.empty() && el_winsertstr(edit, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

void LineEditor::save() {
  if (file_.empty()) return;
  // Written aside and renamed: two sessions may end at once, and prompts are private.
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), error);
  const std::string aside = file_ + "." + std::to_string(::getpid());
  const mode_t mask = ::umask(0077);
  HistEvent event;
  history(history_, &event, H_SAVE, aside.c_str());
  ::umask(mask);
  std::filesystem::rename(aside, file_, error);
  if (error) std::filesystem::remove(aside, error);
}

}  // namespace mlxcel::app
