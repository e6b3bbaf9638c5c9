// Manual pages, from the same descriptions as help and completions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "app/surface.h"

namespace mlxcel::app {
namespace {

struct Named {
  const char* name;
  const char* about;
};

// The variables that no flag stands for, and those a newcomer looks for first.
constexpr Named kVariables[] = {
    {"MLXCEL_MODELS_DIR", "the model store; else models under the cache root"},
    {"MLXCEL_CACHE_DIR", "the cache root (default: ~/.cache/mlxcel)"},
    {"MLXCEL_DEFAULT_ORG", "owner of models that are named without one (default: mlx-community)"},
    {"HF_TOKEN, HUGGING_FACE_HUB_TOKEN", "access token of the hub; sent over HTTPS only"},
    {"HF_ENDPOINT", "a mirror of the hub"},
    {"HF_HUB_CACHE, HF_HOME", "where the Hugging Face cache lies, whose models are used and never changed"},
    {"HF_HUB_OFFLINE, LLAMA_ARG_OFFLINE", "as --offline"},
    {"MLXCEL_PACKED_CACHE", "folder for packed weights, which make the next start quicker; off: none"},
    {"MLXCEL_PACKED_CACHE_MB", "most of them, in megabytes (default: 16384)"},
    {"MLXCEL_MEMORY_LIMIT", "memory to go by, such as 8G"},
    {"MLXCEL_LOG", "what is logged to stderr: a level, or target=level,..."},
    {"MLXCEL_NO_HISTORY", "set to anything: the chat keeps no history file"},
    {"MLXCEL_NO_PROGRESS, NO_COLOR, CI", "no progress bars; no colours either; CI=true: no bars"},
};
constexpr Named kFiles[] = {
    {"~/.cache/mlxcel/models/OWNER/NAME", "models"},
    {"~/.cache/mlxcel/packed", "packed weights; may be deleted at any time"},
    {"~/.cache/mlxcel/history", "what was typed into the chat"},
};

/// Text of a man page: backslashes, hyphens, tildes and leading dots mean something there.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '~') {
      out += "\\(ti";
    } else if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string named(const char* heading, std::span<const Named> entries) {
  std::string out = heading;
  for (const auto& [name, about] : entries)
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(name), roff(about));
  return out;
}

std::string man_flags(const CommandInfo& info) {
  std::string out;
  // Groups in the order of their first flag, as the help has them.
  std::vector<std::string> groups;
  for (const FlagInfo& flag : info.flags)
    if (!flag.hidden && std::find(groups.begin(), groups.end(), flag.group) == groups.end())
      groups.push_back(flag.group);
  for (const std::string& name : groups) {
    out += fmt::format(".SH {}\n", name.empty() ? "OPTIONS" : roff(name));
    for (const FlagInfo& flag : info.flags) {
      if (flag.hidden || flag.group != name) continue;
      const std::string value =
          !flag.choices.empty() ? fmt::format("{}", fmt::join(flag.choices, "|")) : flag.type;
      out += fmt::format(".TP\n\\fB{}\\fR{}\n{}{}{}\n", roff(dashed(flag, ", ")),
                         value.empty() ? "" : " \\fI" + roff(value) + "\\fR", roff(flag.about),
                         flag.fallback.empty() ? "" : fmt::format(" (default: {})", roff(flag.fallback)),
                         flag.env.empty() ? "" : fmt::format(" [{}]", fmt::join(flag.env, ", ")));
    }
  }
  return out;
}

constexpr const char* kExitCodes =
    ".SH EXIT STATUS\n.TP\n\\fB0\\fR\nDone.\n.TP\n\\fB1\\fR\nFailed while running: model not found, load or "
    "download "
    "failed, does not fit, template refused, a check found a fault, an answer was No.\n.TP\n\\fB2\\fR\nWrong "
    "command "
    "line: unknown flag, bad value, conflicting or missing arguments.\n.PP\nA process ended by a signal dies "
    "by that "
    "signal (130 or 143 in a shell); a server that is told to stop drains and ends with 0.\n";

}  // namespace

std::string man_page(std::span<const Command> commands, const Command* command) {
  std::string out;
  if (command) {
    const CommandInfo info = describe(*command);
    std::string title = "MLXCEL-" + info.name;
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    out = fmt::format(
        ".TH {} 1 \"\" \"mlxcel {}\"\n.SH NAME\nmlxcel\\-{} \\- {}\n.SH SYNOPSIS\n\\fBmlxcel {}\\fR "
        "[\\fIOPTIONS\\fR]{}\n",
        roff(title), MLXCEL_VERSION, roff(info.name), roff(info.about), roff(info.name),
        info.positional.empty() ? "" : " [\\fI" + info.positional + "\\fR]");
    if (!info.positional.empty())
      out +=
          fmt::format(".SH ARGUMENTS\n.TP\n\\fI{}\\fR\n{}\n", info.positional, roff(info.positional_about));
    out += man_flags(info) + kExitCodes;
    if (!info.examples.empty()) {
      const auto line = info.examples.find('\n');
      out += ".SH EXAMPLES\n.nf\n" + roff(info.examples.substr(line + 1)) + ".fi\n";
    }
    return out + ".SH SEE ALSO\n\\fBmlxcel\\fR(1)\n";
  }
  out = fmt::format(
      ".TH MLXCEL 1 \"\" \"mlxcel {}\"\n.SH NAME\nmlxcel \\- run AI models on this machine\n.SH SYNOPSIS\n"
      "\\fBmlxcel\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n",
      MLXCEL_VERSION);
  for (const Command& entry : commands)
    out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", entry.name,
                       entry.alias ? fmt::format(", {}", entry.alias) : "", roff(entry.about));
  out += named(
      ".SH ENVIRONMENT\nA flag beats the variable of the same setting; each page names those of its flags.\n",
      kVariables);
  out += named(".SH FILES\n", kFiles) + kExitCodes + ".SH SEE ALSO\n";
  for (const Command& entry : commands)
    out += fmt::format("{}\\fB{}\\fR(1)", &entry == commands.data() ? "" : ",\n",
                       roff(fmt::format("mlxcel-{}", entry.name)));
  return out + "\n";
}

}  // namespace mlxcel::app
