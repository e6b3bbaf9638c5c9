#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>

#include "app/flags/shared.h"
#include "app/wrapped_text.h"
#include "base/memory.h"

namespace mlxcel::app {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::optional<bool> boolean_word(const std::string& text, bool ours) {
  static constexpr std::array<const char*, 4> kOn = {"on", "enabled", "true", "1"};
  static constexpr std::array<const char*, 4> kOff = {"off", "disabled", "false", "0"};
  const std::string word = ours ? lower(text) : text;
  if (std::find(kOn.begin(), kOn.end(), word) != kOn.end() || (ours && word == "yes")) return true;
  if (std::find(kOff.begin(), kOff.end(), word) != kOff.end() || (ours && word == "no")) return false;
  return std::nullopt;
}

bool has_off_spelling(const Flag& flag) {
  const auto all = flag.spellings();
  return std::any_of(all.begin(), all.end(), [](const auto& s) { return !s.second; });
}

void set_from(const std::string& where, const Flag& flag, FlagState& state, const std::string& value) {
  try {
    flag.apply(state, flag, value);
  } catch (const UsageError& error) {
    if (where.empty()) throw;
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  }
}

bool for_every_command(const std::string& name) {
  return !name.starts_with("LLAMA_") || name == "LLAMA_ARG_OFFLINE" || name == "LLAMA_ARG_LANG_BIAS";
}

void read_environment(const Flag& flag, FlagState& state, bool serving) {
  for (const auto& name : split(flag.env)) {
    if (!serving && !for_every_command(name)) continue;
    const char* raw = std::getenv(name.c_str());
    const bool ours = !name.starts_with("LLAMA_");
    if (flag.kind == Flag::Kind::toggle) {
      if (!ours && !raw && has_off_spelling(flag) && name.starts_with("LLAMA_ARG_")) {
        // LLAMA_ARG_NO_X, set to anything, switches X off.
        if (std::getenv(("LLAMA_ARG_NO_" + name.substr(10)).c_str()))
          return set_from("LLAMA_ARG_NO_" + name.substr(10), flag, state, "false");
      }
      if (!raw || (ours && !*raw)) continue;
      const auto on = boolean_word(raw, ours);
      if (!on && (ours || has_off_spelling(flag))) {
        throw UsageError(fmt::format("{}: expected on, off, true, false, 1 or 0, found \"{}\"", name, raw));
      }
      // A value-less option fires only for the words that mean on.
      if (on && (*on || has_off_spelling(flag) || ours)) set_from(name, flag, state, *on ? "true" : "false");
      return;
    }
    if (!raw || !*raw) continue;
    return set_from(name, flag, state, raw);
  }
}

std::string shown_names(const Flag& flag) {
  std::string out;
  for (const auto& [name, on] : flag.spellings()) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

}  // namespace

std::string Flag::name() const {
  for (const auto& [spelling, on] : spellings()) {
    if (spelling.starts_with("--")) return spelling;
  }
  return names;
}

std::vector<std::pair<std::string, bool>> Flag::spellings() const {
  std::vector<std::pair<std::string, bool>> out;
  for (const auto& name : split(names)) {
    if (name.starts_with('!'))
      out.emplace_back(name.substr(1), false);
    else
      out.emplace_back(name, true);
  }
  return out;
}

void read_flags(const std::vector<Flag>& flags, const std::vector<std::string>& words, FlagState& state) {
  std::map<std::string, std::pair<const Flag*, bool>> known;
  for (const auto& flag : flags) {
    for (const auto& [name, on] : flag.spellings()) known[name] = {&flag, on};
  }
  struct Given {
    const Flag* flag;
    std::string value;
    std::string typed;  // its name on the command line
  };
  std::vector<Given> given;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    std::optional<std::string> value;
    if (const auto equals = word.find('='); word.starts_with("--") && equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    auto found = known.find(word);
    if (found == known.end() && word.starts_with("--")) {
      // llama.cpp reads --some_flag as --some-flag.
      std::replace(word.begin(), word.end(), '_', '-');
      found = known.find(word);
    }
    if (found == known.end()) {
      throw UsageError(fmt::format("{}: no such option; see --help", words[i].substr(0, 80)));
    }
    const auto& [flag, on] = found->second;
    if (flag->kind == Flag::Kind::toggle) {
      bool state_wanted = on;
      if (value) {
        const auto given_word = boolean_word(*value, true);
        if (!given_word)
          throw UsageError(
              fmt::format("{}: expected true or false, found \"{}\"", word, value->substr(0, 80)));
        state_wanted = *given_word == on;
      }
      given.push_back({flag, state_wanted ? "true" : "false", flag->names});
      continue;
    }
    if (!value) {
      if (++i >= words.size()) throw UsageError(fmt::format("{}: expected a value", word));
      value = words[i];
    }
    given.push_back({flag, *value, word});
  }
  for (const auto& flag : flags) {
    const bool on_line =
        std::any_of(given.begin(), given.end(), [&](const Given& g) { return g.flag == &flag; });
    if (!flag.env.empty() && (!on_line || flag.env_adds)) read_environment(flag, state, true);
  }
  for (const auto& each : given) {
    Flag typed = *each.flag;  // its errors say the name that was typed
    typed.names = each.typed;
    set_from("", typed, state, each.value);
  }
}

std::vector<std::string> own_variables(const Flag& row) {
  std::vector<std::string> names = split(row.env);
  std::erase_if(names, [](const std::string& name) { return !for_every_command(name); });
  return names;
}

void read_own_variable(const Flag& flag, FlagState& state) { read_environment(flag, state, false); }

std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const char meant = next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : next;
    const bool escape = next != '\0' && std::string_view("ntr\\\"'").find(next) != std::string_view::npos;
    out += escape ? meant : text[i];
    i += escape;
  }
  return out;
}

Flag::Apply integer(long long low, long long high, std::function<void(FlagState&, long long)> set) {
  return [low, high, set = std::move(set)](FlagState& state, const Flag& flag, const std::string& value) {
    long long number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < low || number > high) {
      throw UsageError(
          high >= (1ll << 30)
              ? fmt::format("{} {}: expected an integer of at least {}", flag.name(), value, low)
              : fmt::format("{} {}: expected an integer from {} to {}", flag.name(), value, low, high));
    }
    set(state, number);
  };
}

Flag::Apply real(double low, double high, std::function<void(FlagState&, double)> set) {
  return [low, high, set = std::move(set)](FlagState& state, const Flag& flag, const std::string& value) {
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number) ||
        number < low || number > high) {
      throw UsageError(
          fmt::format("{} {}: expected a number from {:g} to {:g}", flag.name(), value, low, high));
    }
    set(state, number);
  };
}

Flag::Apply text(std::function<void(FlagState&, const std::string&)> set) {
  return
      [set = std::move(set)](FlagState& state, const Flag&, const std::string& value) { set(state, value); };
}

Flag::Apply word(std::vector<std::string> words, std::function<void(FlagState&, const std::string&)> set) {
  return [words = std::move(words), set = std::move(set)](FlagState& state, const Flag& flag,
                                                          const std::string& value) {
    if (std::find(words.begin(), words.end(), value) == words.end()) {
      throw UsageError(
          fmt::format("{} {}: expected {}", flag.name(), value.substr(0, 80), fmt::join(words, ", ")));
    }
    set(state, value);
  };
}

Flag::Apply byte_size(std::function<void(FlagState&, size_t)> set) {
  return [set = std::move(set)](FlagState& state, const Flag& flag, const std::string& value) {
    const auto bytes = parse_limit(value);
    if (!bytes)
      throw UsageError(
          fmt::format("{} {}: expected bytes such as 8G or 512M", flag.name(), value.substr(0, 80)));
    set(state, *bytes);
  };
}

Flag::Apply onoff(std::function<void(FlagState&, bool)> set) {
  return [set = std::move(set)](FlagState& state, const Flag&, const std::string& value) {
    set(state, value == "true");
  };
}

Flag::Apply inert(std::vector<std::string> values, std::string reason) {
  return [values = std::move(values), reason = std::move(reason)](FlagState&, const Flag& flag,
                                                                  const std::string& value) {
    const bool fine = std::find(values.begin(), values.end(), value) != values.end() ||
                      std::find(values.begin(), values.end(), "*") != values.end();
    if (fine) return;
    const bool toggle = flag.kind == Flag::Kind::toggle;
    std::string allowed;
    if (!values.empty() && !toggle) allowed = fmt::format(" (accepted: {})", fmt::join(values, ", "));
    throw UsageError(fmt::format("{}{}{}: {}{}", flag.name(), toggle ? "" : " ",
                                 toggle ? "" : value.substr(0, 80), reason, allowed));
  };
}

Flag::Apply noted(std::string why) {
  return [why = std::move(why)](FlagState& state, const Flag& flag, const std::string&) {
    state.notes.push_back(fmt::format("{}: accepted without effect: {}", flag.name(), why));
  };
}

Flag::Apply refused(std::string reason) { return inert({}, std::move(reason)); }

std::string flags_help(const std::vector<Flag>& flags, const std::string& program) {
  std::string out = fmt::format(
      "Serve a model over HTTP: OpenAI, Anthropic, Ollama and llama-server APIs.\n\nUsage: {} [options]\n",
      program);
  std::string group;
  for (const auto& flag : flags) {
    if (flag.group.empty()) continue;
    if (flag.group != group) out += fmt::format("\n{}:\n", group = flag.group);
    std::string head = "  " + shown_names(flag);
    if (!flag.type.empty()) head += " " + flag.type;
    const auto lines =
        wrapped(flag.env.empty() ? flag.help
                                 : fmt::format("{} [{}]", flag.help, flag.env.substr(0, flag.env.find(','))),
                help_width() - 36);
    if (head.size() > 34) {
      out += head + "\n";
      head.clear();
    }
    for (const auto& line : lines) {
      out += fmt::format("{:<36}{}\n", head, line);
      head.clear();
    }
  }
  out += fmt::format(
      "\nExamples:\n  {0} -m SmolLM2-135M-Instruct.gguf\n  {0} -m ./all-MiniLM-L6-v2 --port 8081\n"
      "  {0} -m owner/name --api-key secret --ssl-cert-file cert.pem --ssl-key-file key.pem\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], \"stream\": true}}'\n",
      program);
  return out;
}

std::string flags_markdown(const std::vector<Flag>& flags) {
  auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c;
    }
    return out;
  };
  std::string out, group;
  for (const auto& flag : flags) {
    if (flag.group.empty()) continue;
    if (flag.group != group) {
      out += fmt::format("\n### {}\n\n| Flag | Environment | Meaning |\n| --- | --- | --- |\n",
                         group = flag.group);
    }
    std::string env;
    for (const auto& name : split(flag.env)) env += fmt::format("{}`{}`", env.empty() ? "" : ", ", name);
    out += fmt::format("| `{}{}` | {} | {} |\n", shown_names(flag),
                       flag.type.empty() ? "" : " " + escaped(flag.type), env, escaped(flag.help));
  }
  return out;
}

std::string flags_completion(const std::vector<Flag>& flags, const std::string& program) {
  std::string words;
  for (const auto& flag : flags) {
    if (flag.group.empty()) continue;
    for (const auto& [name, on] : flag.spellings()) words += (words.empty() ? "" : " ") + name;
  }
  return fmt::format(
      "_mlxcel_server() {{\n  COMPREPLY=($(compgen -W \"{}\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n}}\n"
      "complete -o default -F _mlxcel_server {}\n",
      words, program);
}

const std::vector<Flag>& server_flags() {
  static const std::vector<Flag> all = [] {
    std::vector<Flag> out;
    add_model_flags(out);
    add_router_flags(out);
    add_network_flags(out);
    add_run_flags(out);
    add_engine_flags(out);
    add_load_flags(out);
    add_answer_flags(out);
    add_side_flags(out);
    add_foreign_flags(out);
    return out;
  }();
  return all;
}

}  // namespace mlxcel::app
