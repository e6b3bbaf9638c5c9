#include "app/repl.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/line_editor.h"
#include "app/markdown.h"
#include "app/terminal.h"

namespace mlxcel::app {
namespace {

constexpr const char* kHelp =
    "  /bye, Ctrl-D          leave\n"
    "  /clear                forget the conversation\n"
    "  /undo, /regen         drop the last turn; answer it again\n"
    "  /set system TEXT      change the system message\n"
    "  /set KEY VALUE        temperature, top_k, top_p, min_p, repeat_penalty, seed, max_tokens\n"
    "  /show                 the system message and sampling values\n"
    "  /save FILE, /load FILE  the conversation as JSON\n"
    "  /image PATH, /audio PATH  attach to the next message (models that see or hear)\n"
    "  \"\"\"                   opens and closes a block of several lines\n"
    "  Ctrl-C                stops an answer; at an empty prompt it leaves\n";

class Repl {
 public:
  Repl(Conversation& conversation, bool quiet) : conversation_(conversation), quiet_(quiet) {}

  int run() {
    if (!quiet_) fmt::print(stderr, "type a message; /help lists the commands\n");
    while (auto line = editor_.read(">>> ")) {
      std::string text = *line;
      if (text == "\"\"\"") {
        if (!read_block(text)) break;
      } else {
        editor_.remember(text);
        if (text.find_first_not_of(" \t") == std::string::npos) continue;
        if (text[0] == '/') {
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
      const bool colours = styled(stdout_is_terminal());
      MarkdownPainter painter;
      const auto print = [](const std::string& piece) {
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        std::fflush(stdout);
      };
      const TextEnd end = conversation_.answer(
          text, [&](const std::string& piece) { print(colours ? painter.push(piece) : piece); });
      print(painter.finish() + "\n");
      if (!quiet_) fmt::print(stderr, "{}\n", statistics_line(end));
    } catch (const Error& error) {
      fmt::print(stderr, "error: {}\n", error.what());
    }
  }

  void set(const std::string& key, const std::string& value) {
    TurnOptions& options = conversation_.options();
    SamplingParams changed = options.sampling;
    try {
      size_t used = 0;
      if (key == "system") return conversation_.set_system(value);
      if (key == "temperature")
        changed.temperature = std::stof(value, &used);
      else if (key == "top_k")
        changed.top_k = std::stoi(value, &used);
      else if (key == "top_p")
        changed.top_p = std::stof(value, &used);
      else if (key == "min_p")
        changed.min_p = std::stof(value, &used);
      else if (key == "repeat_penalty")
        changed.repeat_penalty = std::stof(value, &used);
      else if (key == "seed")
        changed.seed = static_cast<uint32_t>(std::stoul(value, &used));
      else if (key == "max_tokens")
        options.max_tokens = std::stoi(value, &used);
      else
        return fmt::print(stderr, "/set {}: no such setting; /help lists them\n", key);
      if (used != value.size()) throw std::invalid_argument(value);
      validate(changed, 1 << 30);
      options.sampling = changed;
    } catch (const std::logic_error&) {
      fmt::print(stderr, "/set {} {}: expected a number\n", key, value);
    } catch (const Error& error) {
      fmt::print(stderr, "/set {}: {}\n", key, error.what());
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
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const ChatMessage& message : conversation_.messages())
      json.push_back({{"role", message.role}, {"content", message.content}});
    std::ofstream out(path);
    out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    out.flush();
    if (!out) return fmt::print(stderr, "/save {}: could not be written\n", path);
    fmt::print("saved {} messages to {}\n", json.size(), path);
  }

  void load(const std::string& path) {
    try {
      std::ifstream in(path);
      if (!in) return fmt::print(stderr, "/load {}: cannot be opened\n", path);
      const auto json = nlohmann::json::parse(in);
      std::vector<ChatMessage> messages;
      for (const auto& item : json)
        messages.push_back({item.at("role").get<std::string>(), item.at("content").get<std::string>()});
      conversation_.messages() = std::move(messages);
      fmt::print("loaded {} messages\n", conversation_.messages().size());
    } catch (const nlohmann::json::exception& error) {
      fmt::print(stderr, "/load {}: expected a list of objects with role and content: {}\n", path,
                 error.what());
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
      if (!conversation_.undo()) fmt::print(stderr, "nothing to undo\n");
    } else if (name == "/regen") {
      const auto& messages = conversation_.messages();
      std::string last;
      for (const ChatMessage& message : messages)
        if (message.role == "user") last = message.content;
      if (conversation_.undo())
        answer(last);
      else
        fmt::print(stderr, "nothing to answer again\n");
    } else if (name == "/show") {
      show();
    } else if (name == "/set") {
      const auto split = rest.find(' ');
      if (split == std::string::npos)
        fmt::print(stderr, "/set KEY VALUE, for example /set temperature 0.7\n");
      else
        set(rest.substr(0, split), rest.substr(split + 1));
    } else if ((name == "/save" || name == "/load") && rest.empty()) {
      fmt::print(stderr, "{} FILE\n", name);
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/load") {
      load(rest);
    } else if (name == "/image" || name == "/audio") {
      fmt::print(stderr, "{}: this model takes text only\n", name);
    } else {
      fmt::print(stderr, "{}: no such command; /help lists them\n", name);
    }
    return true;
  }

  Conversation& conversation_;
  bool quiet_;
  LineEditor editor_;
};

}  // namespace

int run_repl(Conversation& conversation, bool quiet) { return Repl(conversation, quiet).run(); }

}  // namespace mlxcel::app
