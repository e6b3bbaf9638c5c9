#include "app/surface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/flags/shared.h"
#include "app/options.h"
#include "base/file.h"

namespace mlxcel::app {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// The words of "a|b|c".
std::vector<std::string> choices_of(const std::string& value) {
  const bool words = value.find('|') != std::string::npos;
  return words && value.find_first_of("{}[]:= ") == std::string::npos ? split(value, '|')
                                                                      : std::vector<std::string>();
}

FlagInfo flag_of(const CLI::Option& option) {
  FlagInfo flag;
  flag.longs = option.get_lnames();
  flag.shorts = option.get_snames();
  if (const Flag* row = shared_row(&option)) {
    flag.env = own_variables(*row);
    flag.status = row->status;
  }
  const bool list = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  flag.value = option.get_items_expected_max() == 0 ? "none" : list ? "list" : "one";
  if (flag.value != "none") {
    const std::string value = value_of(option);
    flag.choices = choices_of(value);
    flag.type = flag.choices.empty() ? value : "";
  }
  flag.fallback = option.get_default_str();
  flag.group = option.get_group() == "Options" ? "" : option.get_group();
  flag.about = option.get_description();
  flag.hidden = option.get_group().empty();
  return flag;
}

/// The server reads its flags from a table of its own.
FlagInfo flag_of(const Flag& row) {
  FlagInfo flag;
  for (const auto& [spelling, on] : row.spellings()) {
    const bool full = spelling.starts_with("--");
    (full ? flag.longs : flag.shorts).push_back(spelling.substr(full ? 2 : 1));
  }
  flag.env = split(row.env, ',');
  flag.status = row.status;
  flag.value = row.kind == Flag::Kind::toggle ? "none" : row.kind == Flag::Kind::list ? "list" : "one";
  flag.choices = choices_of(row.type);
  flag.type = flag.choices.empty() ? row.type : "";
  flag.group = row.group;
  flag.about = row.help;
  flag.hidden = row.group.empty();
  return flag;
}

std::string single_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + out + "'";
}

bool wants_model(const FlagInfo& flag) { return flag.type == "REF"; }
bool wants_file(const FlagInfo& flag) {
  return flag.type == "PATH" || flag.type == "FILE" || flag.type == "PATH:SCALE";
}
bool wants_folder(const FlagInfo& flag) { return flag.type == "DIR"; }

std::vector<CommandInfo> describe_all(std::span<const Command> commands) {
  std::vector<CommandInfo> all;
  for (const Command& command : commands) all.push_back(describe(command));
  return all;
}

// Candidates are lines: names of files have spaces. Readline makes words of "=" and ":" of their own.
constexpr const char* kBashHead = R"bash(# bash completion of mlxcel
_mlxcel_models() { mlxcel list -q 2>/dev/null; }
_mlxcel_pick() { (IFS=$' \n'; compgen -W "$1" -- "$2"); }
_mlxcel_files() { _mlxcel_pick "$(_mlxcel_models)" "$1"; compgen -f -- "$1"; }
_mlxcel() {
  local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} colon=
  if [ "$word" = = ]; then word=
  elif [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}
  elif [ "$word" = : ]; then colon=$before:; word=$colon; before=${COMP_WORDS[COMP_CWORD-2]}
  elif [ "$before" = : ]; then
    colon=${COMP_WORDS[COMP_CWORD-2]}:; word=$colon$word; before=${COMP_WORDS[COMP_CWORD-3]}
  fi
  COMPREPLY=($(_mlxcel_reply "$word" "$before"))
  COMPREPLY=("${COMPREPLY[@]#"$colon"}")
}
_mlxcel_reply() {
  local word=$1 before=$2 command=${COMP_WORDS[1]} flags=
)bash";

std::string bash(const std::vector<CommandInfo>& commands) {
  std::string out = kBashHead;
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command.name);
  out += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    _mlxcel_pick {} \"$word\"\n    return\n  fi\n"
      "  case $command in\n",
      single_quoted(fmt::format("{} --help --version", fmt::join(names, " "))));
  for (const auto& command : commands) {
    out += fmt::format("  {}{})\n    case $before in\n", command.name,
                       command.alias.empty() ? "" : "|" + command.alias);
    std::vector<std::string> flags;
    for (const FlagInfo& flag : command.flags) {
      if (flag.hidden) continue;
      flags.push_back(dashed(flag, " "));
      if (flag.value == "none") continue;
      std::string action = "return";
      if (!flag.choices.empty())
        action = fmt::format("_mlxcel_pick {} \"$word\"; return",
                             single_quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
      else if (wants_model(flag))
        action = "_mlxcel_files \"$word\"; return";
      else if (wants_file(flag))
        action = "compgen -f -- \"$word\"; return";
      else if (wants_folder(flag))
        action = "compgen -d -- \"$word\"; return";
      out += fmt::format("    {}) {} ;;\n", dashed(flag, "|"), action);
    }
    out +=
        fmt::format("    esac\n    flags={} ;;\n", single_quoted(fmt::format("{}", fmt::join(flags, " "))));
  }
  out +=
      "  esac\n"
      "  case $word in\n"
      "  -*) _mlxcel_pick \"$flags\" \"$word\" ;;\n"
      "  *) _mlxcel_files \"$word\" ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -o bashdefault -F _mlxcel mlxcel\n";
  return out;
}

/// Text inside a zsh specification: brackets and colons delimit there.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh(const std::vector<CommandInfo>& commands) {
  std::string out =
      "#compdef mlxcel\n"
      "_mlxcel_models() { local -a found; found=(${(f)\"$(mlxcel list -q 2>/dev/null)\"}); "
      "compadd -a found; _files }\n"
      "_mlxcel() {\n  local -a commands\n  commands=(\n";
  for (const auto& command : commands)
    out += fmt::format("    {}\n", single_quoted(command.name + ":" + zsh_text(command.about)));
  out +=
      "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "  local command=$words[2]\n  shift words; (( CURRENT-- ))\n  case $command in\n";
  for (const auto& command : commands) {
    out += fmt::format("  {}{})\n    _arguments -s", command.name,
                       command.alias.empty() ? "" : "|" + command.alias);
    for (const FlagInfo& flag : command.flags) {
      if (flag.hidden) continue;
      std::string value;
      if (flag.value != "none") {
        const std::string what = flag.type.empty() ? "value" : zsh_text(flag.type);
        value = ":" + what + ":";
        if (!flag.choices.empty()) value += fmt::format("({})", fmt::join(flag.choices, " "));
        if (wants_model(flag)) value += "_mlxcel_models";
        if (wants_file(flag)) value += "_files";
        if (wants_folder(flag)) value += "_files -/";
      }
      const auto each = [&](const std::string& name) {
        out += " \\\n      " + single_quoted((flag.value == "list" ? "*" : "") + name + "[" +
                                             zsh_text(flag.about) + "]" + value);
      };
      for (const auto& name : flag.shorts) each("-" + name);
      for (const auto& name : flag.longs) each("--" + name + (value.empty() ? "" : "="));
    }
    if (!command.positional.empty()) out += " \\\n      '1:model:_mlxcel_models'";
    out += " ;;\n";
  }
  return out + "  esac\n}\n_mlxcel \"$@\"\n";
}

std::string fish(const std::vector<CommandInfo>& commands) {
  std::string out = "# fish completion of mlxcel\ncomplete -c mlxcel -f\n";
  for (const auto& command : commands)
    out += fmt::format("complete -c mlxcel -n __fish_use_subcommand -a {} -d {}\n", command.name,
                       single_quoted(command.about));
  for (const auto& command : commands) {
    const std::string when = fmt::format("complete -c mlxcel -n {}",
                                         single_quoted("__fish_seen_subcommand_from " + command.name +
                                                       (command.alias.empty() ? "" : " " + command.alias)));
    for (const FlagInfo& flag : command.flags) {
      if (flag.hidden) continue;
      out += when;
      for (const auto& name : flag.shorts) out += (name.size() == 1 ? " -s " : " -o ") + name;
      for (const auto& name : flag.longs) out += " -l " + name;
      // -r: a value, files among them; -x: a value, and no file.
      const bool files = wants_model(flag) || wants_file(flag) || wants_folder(flag);
      if (flag.value != "none") out += files ? " -r -F" : " -x";
      if (!flag.choices.empty())
        out += " -a " + single_quoted(fmt::format("{}", fmt::join(flag.choices, " ")));
      if (wants_model(flag)) out += " -a '(mlxcel list -q 2>/dev/null)'";
      out += " -d " + single_quoted(flag.about) + "\n";
    }
    if (!command.positional.empty()) out += when + " -F -a '(mlxcel list -q 2>/dev/null)'\n";
  }
  return out;
}

}  // namespace

std::string dashed(const FlagInfo& flag, const char* separator) {
  std::vector<std::string> names;
  for (const auto& name : flag.shorts) names.push_back("-" + name);
  for (const auto& name : flag.longs) names.push_back("--" + name);
  return fmt::format("{}", fmt::join(names, separator));
}

CommandInfo describe(const Command& command) {
  CommandInfo info{command.name, command.alias ? command.alias : "", command.about, "", "", "", {}};
  if (info.name == "serve") {
    for (const Flag& row : server_flags()) info.flags.push_back(flag_of(row));
    const std::string help = flags_help(server_flags(), "mlxcel serve");
    info.examples = help.substr(std::min(help.find("Examples:\n"), help.size()));
    return info;
  }
  const FlagProbe probe([&](CLI::App& app) {
    info.examples = app.get_footer();
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_positional()) {
        info.positional = option->get_single_name();
        info.positional_about = option->get_description();
      } else {
        info.flags.push_back(flag_of(*option));
      }
    }
  });
  std::string name = command.name;
  char* argv[] = {name.data(), nullptr};
  try {
    command.run(1, argv);
  } catch (const FlagProbe::Done&) {
  }
  return info;
}

std::string flag_surface(const std::string& program, std::span<const Command> commands) {
  using Json = nlohmann::ordered_json;
  Json binaries = Json::array();
  for (const CommandInfo& info : describe_all(commands)) {
    Json flags = Json::array();
    for (const FlagInfo& flag : info.flags) {
      Json longs = Json::array(), shorts = Json::array();
      for (const auto& name : flag.longs) longs.push_back("--" + name);
      for (const auto& name : flag.shorts) shorts.push_back("-" + name);
      flags.push_back({{"long", longs},
                       {"short", shorts},
                       {"env", flag.env},
                       {"value", flag.value},
                       {"default", flag.fallback.empty() ? Json(nullptr) : Json(flag.fallback)},
                       {"status", flag.status},
                       {"hidden", flag.hidden}});
    }
    binaries.push_back(
        {{"name", program},
         {"subcommand", program == "mlxcel-server" && info.name == "serve" ? Json(nullptr) : Json(info.name)},
         {"flags", flags}});
  }
  return Json{{"mlxcel_version", MLXCEL_VERSION}, {"binaries", binaries}}.dump(1) + "\n";
}

std::string completion(Shell shell, std::span<const Command> commands) {
  const auto all = describe_all(commands);
  return shell == Shell::bash ? bash(all) : shell == Shell::zsh ? zsh(all) : fish(all);
}

void write_docs(std::span<const Command> commands, const std::filesystem::path& share) {
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((share / name).parent_path());
    AtomicFile file(share / name);
    file.write(text);
    file.commit();
    std::filesystem::permissions(share / name, std::filesystem::perms{0644});
  };
  write("man/man1/mlxcel.1", man_page(commands, nullptr));
  for (const Command& command : commands)
    write(fmt::format("man/man1/mlxcel-{}.1", command.name), man_page(commands, &command));
  write("man/man1/mlxcel-server.1", ".so man1/mlxcel-serve.1\n");
  write("bash-completion/completions/mlxcel", completion(Shell::bash, commands));
  write("zsh/vendor-completions/_mlxcel", completion(Shell::zsh, commands));
  write("fish/vendor_completions.d/mlxcel.fish", completion(Shell::fish, commands));
}

}  // namespace mlxcel::app
