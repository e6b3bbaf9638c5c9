// The `mlxcel` program: picks the subcommand; each lives in its own file.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "app/commands.h"
#include "app/options.h"
#include "app/serve.h"
#include "base/log.h"

namespace mlxcel::app {
namespace {

int serve(int argc, char** argv) { return serve_command(argc, argv, "mlxcel serve"); }

struct Command {
  const char* name;
  const char* alias;
  const char* about;
  int (*run)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"run", nullptr, "answer a prompt or chat; without a model the default one", run_command},
    {"generate", "gen", "the same, model through -m", generate_command},
    {"chat", nullptr, "chat in the terminal", chat_command},
    {"embed", nullptr, "turn texts into vectors", embed_command},
    {"serve", nullptr, "the HTTP server (OpenAI-compatible)", serve},
    {"list", "ls", "models in the store", list_command},
    {"inspect", nullptr, "what a model needs, from its headers alone", inspect_command},
    {"arch", "supported", "supported architectures", arch_command},
    {"bench", nullptr, "prompt and generation speed", bench_command},
};

void print_help() {
  fmt::print("mlxcel runs language models on this machine.\n\nusage: mlxcel COMMAND [OPTIONS]\n\n");
  for (const Command& command : kCommands) fmt::print("  {:<10} {}\n", command.name, command.about);
  fmt::print(
      "\n  --version  version, MLX and backends (with --verbose: instruction set, threads, precision)\n"
      "  --help     this text; every command has its own\n\n"
      "Examples:\n"
      "  mlxcel run -p \"What is the capital of France?\"\n"
      "  mlxcel run                                    chat with the default model\n"
      "  mlxcel serve -m SmolLM2-135M-Instruct --port 8080\n");
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    print_help();
    return 2;
  }
  const std::string_view first = argv[1];
  if (first == "--help" || first == "-h" || first == "help") {
    print_help();
    return 0;
  }
  if (first == "--version") {
    fmt::print("{}\n", version_line());
    if (argc > 2 && std::string_view(argv[2]) == "--verbose") fmt::print("device: {}\n", device_label());
    return 0;
  }
  for (const Command& command : kCommands) {
    if (first != command.name && !(command.alias && first == command.alias)) continue;
    if (std::string_view(command.name) != "serve") log::configure_from_environment(log::Level::off);
    return command.run(argc - 1, argv + 1);
  }
  throw UsageError(fmt::format("{}: no such command; `mlxcel --help` lists them", first));
}

}  // namespace
}  // namespace mlxcel::app

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a write error with a message, not a silent death
  return mlxcel::app::guarded("mlxcel", [&] { return mlxcel::app::dispatch(argc, argv); });
}
