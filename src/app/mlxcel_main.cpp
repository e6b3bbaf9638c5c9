// The `mlxcel` program: picks the subcommand; each lives in its own file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>

#include "app/commands.h"
#include "app/line_editor.h"
#include "app/options.h"
#include "app/serve.h"
#include "app/surface.h"
#include "base/log.h"

namespace mlxcel::app {
namespace {

int serve(int argc, char** argv) { return serve_command(argc, argv, "mlxcel serve"); }

constexpr Command kCommands[] = {
    {"run", nullptr, "Answer", "answer a prompt or chat; without a model the default one", run_command},
    {"generate", "gen", "Answer", "the same, model through -m", generate_command},
    {"chat", nullptr, "Answer", "chat in the terminal", chat_command},
    {"embed", nullptr, "Answer", "turn texts into vectors", embed_command},
    {"rerank", nullptr, "Answer", "order documents by how well they answer a query", rerank_command},
    {"serve", nullptr, "Answer", "the HTTP server (OpenAI-compatible)", serve},
    {"list", "ls", "Models", "models in the store", list_command},
    {"download", nullptr, "Models", "fetch a model into the store", download_command},
    {"rm", nullptr, "Models", "delete a model from the store", rm_command},
    {"arch", "supported", "Models", "supported architectures", arch_command},
    {"inspect", nullptr, "Models", "what a model needs, from its headers alone", inspect_command},
    {"doctor", nullptr, "Models", "check a model and name every disagreement", doctor_command},
    {"quantize", nullptr, "Models", "write a model in another format (MLX folder)", quantize_command},
    {"split-mtp", nullptr, "Models", "cut the drafting block out of a raw GLM-4.7-Flash", split_mtp_command},
    {"bench", nullptr, "Measure", "prompt and generation speed", bench_command},
    {"perplexity", nullptr, "Measure", "how well a model predicts a text", perplexity_command},
    {"tune", nullptr, "Measure", "measure kernel variants and keep the winners", tune_command},
};

void print_help() {
  fmt::print("mlxcel runs AI models on this machine.\n\nusage: mlxcel COMMAND [OPTIONS]\n");
  std::string_view group;
  for (const Command& command : kCommands) {
    if (group != command.group) fmt::print("\n{}\n", group = command.group);
    fmt::print("  {:<11} {}\n", command.name, command.about);
  }
  fmt::print(
      "\nGeneral\n"
      "  --version   version, MLX and backends (with --verbose: instruction set, threads, precision)\n"
      "  --help      this text; every command has its own: mlxcel run --help\n"
      "  --completion-bash, --completion-zsh, --completion-fish\n"
      "              print a completion script, for example: source <(mlxcel --completion-bash)\n"
      "\nExamples\n"
      "  mlxcel run                                    chat with the default model\n"
      "  mlxcel run -p \"What is the capital of France?\"\n"
      "  git diff | mlxcel run --system \"Summarise this change.\"\n"
      "  mlxcel download mlx-community/Qwen3-0.6B-4bit\n"
      "  mlxcel serve -m SmolLM2-135M-Instruct --port 8080\n"
      "\nModels are named by a folder, a .gguf file, owner/name, owner/name:QUANT, or a bare name; what\n"
      "is not here is fetched into the store (`mlxcel list`). Exit codes: 0 done, 1 failed, 2 wrong\n"
      "command line.\n");
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands)
    if (name == command.name || (command.alias && name == command.alias)) return &command;
  return nullptr;
}

constexpr std::string_view kGeneral[] = {"--help",
                                         "-h",
                                         "help",
                                         "--version",
                                         "--completion-bash",
                                         "--completion-zsh",
                                         "--completion-fish",
                                         "--man-page",
                                         "--write-docs",
                                         "--dump-flag-surface"};

/// A word that nobody reads is a mistake.
void check_words(int argc, char** argv) {
  const std::string_view first = argv[1], second = argc > 2 ? argv[2] : "";
  if (std::find(std::begin(kGeneral), std::end(kGeneral), first) == std::end(kGeneral)) return;
  const bool takes_one = first == "help" || first == "--man-page" || first == "--write-docs" ||
                         (first == "--version" && second == "--verbose");
  const int most = takes_one ? 3 : 2;
  if (argc > most) throw UsageError(fmt::format("{}: not expected after {}", argv[most], argv[most - 1]));
}

/// What is asked of the program itself; nothing when it is a subcommand's affair.
bool general(int argc, char** argv) {
  const std::string_view first = argv[1];
  const std::string_view second = argc > 2 ? argv[2] : "";
  check_words(argc, argv);
  if (first == "--help" || first == "-h") {
    print_help();
  } else if (first == "--version") {
    fmt::print("{}\n", version_line());
    if (second == "--verbose") fmt::print("device: {}\n", device_label());
  } else if (first == "--completion-bash") {
    fmt::print("{}", completion(Shell::bash, kCommands));
  } else if (first == "--completion-zsh") {
    fmt::print("{}", completion(Shell::zsh, kCommands));
  } else if (first == "--completion-fish") {
    fmt::print("{}", completion(Shell::fish, kCommands));
  } else if (first == "--dump-flag-surface") {
    fmt::print("{}", flag_surface("mlxcel", kCommands));
  } else if (first == "--write-docs") {
    if (second.empty()) throw UsageError("--write-docs: which folder? for example /usr/share");
    write_docs(kCommands, second);
  } else if (first == "--man-page") {
    const Command* command = second.empty() ? nullptr : find_command(second);
    if (!second.empty() && !command) throw UsageError(fmt::format("--man-page {}: no such command", second));
    fmt::print("{}", man_page(kCommands, command));
  } else {
    return false;
  }
  return true;
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    print_help();
    return 2;
  }
  if (general(argc, argv)) return 0;
  std::string help = "--help";
  const bool asked = std::string_view(argv[1]) == "help";
  if (asked && argc == 2) {
    print_help();
    return 0;
  }
  const std::string_view name = argv[asked ? 2 : 1];
  const Command* command = find_command(name);
  if (name == "detect")
    throw UsageError("detect: finding objects needs a model that sees (RT-DETRv2); this build has none");
  if (!command) throw UsageError(fmt::format("{}: no such command; `mlxcel --help` lists them", name));
  if (std::string_view(command->name) != "serve") {
    try {
      log::configure_from_environment(log::Level::off);
    } catch (const Error& error) {
      throw UsageError(fmt::format("MLXCEL_LOG: {}", error.what()));
    }
  }
  if (!asked) return command->run(argc - 1, argv + 1);
  char* words[] = {argv[2], help.data(), nullptr};
  return command->run(2, words);
}

}  // namespace

}  // namespace mlxcel::app

int main(int argc, char** argv) {
  mlxcel::app::LineEditor::keep_window_changes();
  return mlxcel::app::guarded("mlxcel", [&] { return mlxcel::app::dispatch(argc, argv); });
}
