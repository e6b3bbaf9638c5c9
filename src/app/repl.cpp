#include "app/repl.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "app/answer_printer.h"
#include "app/line_editor.h"
#include "app/say.h"
#include "app/terminal.h"
#include "app/transcript.h"

namespace mlxcel::app {
namespace {

constexpr const char* kHelp =
    "  /bye, Ctrl-D          leave\n"
    "  /clear                forget the conversation\n"
    "  /undo, /regen         drop the last turn; answer it again\n"
    "  /set system TEXT      change the system message\n"
    "  /set KEY VALUE        any sampling flag (temperature, top_k, seed, …) or max_tokens\n"
    "  /show                 the system message and sampling values\n"
    "  /save FILE, /load FILE  the conversation as JSON\n"
    "  /image PATH, /audio PATH  attach to the next message (models that see or hear)\n"
    "  \"\"\"                   opens and closes a block of several lines\n"
    "  Ctrl-C                stops an answer; at an empty prompt it leaves\n";

class Repl {
 public:
  Repl(const Engine& engine, Conversation& conversation, GenerateFlags& flags)
      : engine_(engine), conversation_(conversation), flags_(flags) {}

  int run() {
    if (!flags_.model().quiet) say("type a message; /help lists the commands\n");
    while (auto line = editor_.read(">>> ")) {
      std::string text = *line;
      if (text == "\"\"\"") {
        if (!read_block(text)) break;
      } else {
        editor_.remember(text);
        if (text.find_first_not_of(" \t") == std::string::npos) continue;
        // Several lines were pasted: text that happens to begin with a slash is no command.
        if (text[0] == '/' && text.find('\n') == std::string::npos) {
          if (!command(text)) break;
          continue;
        }
      }
      answer(text);
    }
    return 0;
  }

 private:
  bool read_block(std::string& text) {
    text.clear();
    while (auto line = editor_.read("... ")) {
      if (*line == "\"\"\"") return true;
      text += *line + "\n";
    }
    return false;
  }

  void answer(const std::string& text) {
    try {
      const Interrupt interrupt;
      AnswerPrinter printer(flags_.show_reasoning);
      const TextEnd end = conversation_.answer(
          text, [&](const std::string& piece, bool thought) { printer.print(piece, thought); });
      printer.finish();
      std::fputs("\n", stdout);
      std::fflush(stdout);
      if (!flags_.model().quiet) say("{}\n", statistics_line(end));
    } catch (const Error& error) {
      say("error: {}\n", error.what());
    }
  }

  void set(const std::string& key, const std::string& value) {
    if (key == "system") return conversation_.set_system(value);
    TurnOptions& options = conversation_.options();
    if (key == "max_tokens") {
      const auto end = value.data() + value.size();
      int n = 0;
      const auto parsed = std::from_chars(value.data(), end, n);
      if (parsed.ec != std::errc{} || parsed.ptr != end || n < -1)
        return say("/set {} {}: expected a number of at least -1\n", key, value);
      options.max_tokens = n;
      return;
    }
    const FlagState before = flags_.state;
    try {
      if (!set_sampling(flags_.state, key, value))
        return say("/set {}: no such setting; /help lists them\n", key);
      options.sampling =
          checked_sampling(flags_.state, engine_.checkpoint().generation_config, engine_.info().vocab_size);
    } catch (const std::exception& error) {
      flags_.state = before;
      const std::string_view why = error.what();
      const bool named = why.starts_with(key + " ") || why.starts_with(key + ":");
      say("/set {}{}\n", named ? "" : fmt::format("{} {}: ", key, value), why);
    }
  }

  void show() {
    const TurnOptions& options = conversation_.options();
    const SamplingParams& s = options.sampling;
    fmt::print("system          {}\n", conversation_.system().value_or("(none)"));
    fmt::print(
        "temperature     {}\ntop_k           {}\ntop_p           {}\nmin_p           {}\nrepeat_penalty  "
        "{}\n",
        s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty);
    fmt::print("seed            {}\nmax_tokens      {}\nmessages        {}\n",
               s.seed ? std::to_string(*s.seed) : "(random)", options.max_tokens,
               conversation_.messages().size());
  }

  void save(const std::string& path) {
    try {
      write_transcript(path, conversation_.messages());
      fmt::print("saved {} messages to {}\n", conversation_.messages().size(), path);
    } catch (const Error& error) {
      say("/save {}: could not be written: {}\n", path, error.what());
    }
  }

  void load(const std::string& path) {
    try {
      conversation_.messages() = read_transcript(path);
      fmt::print("loaded {} messages\n", conversation_.messages().size());
    } catch (const Error& error) {
      say("/load {}: {}\n", path, error.what());
    }
  }

  /// False: leave.
  bool command(const std::string& line) {
    const auto space = line.find(' ');
    const std::string name = line.substr(0, space);
    std::string rest = space == std::string::npos
                           ? ""
                           : line.substr(line.find_first_not_of(' ', space) == std::string::npos
                                             ? line.size()
                                             : line.find_first_not_of(' ', space));
    if (name == "/bye") return false;
    if (name == "/?" || name == "/help") {
      std::fputs(kHelp, stdout);
    } else if (name == "/clear") {
      const auto system = conversation_.system();
      conversation_.messages().clear();
      if (system) conversation_.set_system(*system);
    } else if (name == "/undo") {
      if (!conversation_.undo()) say("nothing to undo\n");
    } else if (name == "/regen") {
      const auto& messages = conversation_.messages();
      std::string last;
      for (const ChatMessage& message : messages)
        if (message.role == "user") last = message.content;
      if (conversation_.undo())
        answer(last);
      else
        say("nothing to answer again\n");
    } else if (name == "/show") {
      show();
    } else if (name == "/set") {
      const auto split = rest.find(' ');
      if (split == std::string::npos)
        say("/set KEY VALUE, for example /set temperature 0.7\n");
      else
        set(rest.substr(0, split), rest.substr(split + 1));
    } else if ((name == "/save" || name == "/load") && rest.empty()) {
      say("{} FILE\n", name);
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/load") {
      load(rest);
    } else if (name == "/image" || name == "/audio") {
      say("{}: this model takes text only\n", name);
    } else {
      say("{}: no such command; /help lists them\n", name);
    }
    return true;
  }

  const Engine& engine_;
  Conversation& conversation_;
  GenerateFlags& flags_;
  LineEditor editor_;
};

}  // namespace

int run_repl(const Engine& engine, Conversation& conversation, GenerateFlags& flags) {
  return Repl(engine, conversation, flags).run();
}

}  // namespace mlxcel::app
