// `run`, `generate` and `chat`: one engine, three front doors (docs: cli.md section 4).
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/conversation.h"
#include "app/options.h"
#include "app/repl.h"
#include "app/terminal.h"

namespace mlxcel::app {
namespace {

constexpr size_t kMostPromptBytes = size_t{64} << 20;

enum class Door { run, generate, chat };

struct Flags {
  ModelFlags model;
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::string file, system;
  int max_tokens = -1;
  std::vector<std::string> stops;
  bool no_template = false;
  bool json = false;
};

std::string read_all(std::istream& in, const std::string& where) {
  std::string text;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(in.gcount()));
    if (text.size() > kMostPromptBytes)
      throw UsageError(fmt::format("{}: a prompt of over {} MiB", where, kMostPromptBytes >> 20));
  }
  if (in.bad()) throw Error(ErrorKind::invalid_request, fmt::format("{}: could not be read", where));
  return text;
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw UsageError(fmt::format("--file {}: is a directory", path));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("--file {}: cannot be opened", path));
  return read_all(in, path);
}

/// The one prompt the flags and stdin amount to; nothing means the REPL.
std::optional<std::string> whole_prompt(const Flags& flags, Door door) {
  std::optional<std::string> text;
  if (!flags.file.empty()) text = read_file(flags.file);
  if (flags.prompt) {
    const std::string given = *flags.prompt == "-" ? read_all(std::cin, "stdin") : *flags.prompt;
    text = text ? *text + "\n" + given : given;
  }
  if (!text && door != Door::chat && !stdin_is_terminal()) text = read_all(std::cin, "stdin");
  return text;
}

void print_banner(const Engine& engine) {
  const ModelInfo& info = engine.info();
  fmt::print(stderr, "mlxcel {} | {} ({}) | {} | {} | KV {} | ctx {}\n", MLXCEL_VERSION, device_label(),
             MLXCEL_BACKEND_NAME, engine.checkpoint().path.filename().string(), info.weights_label,
             engine.kv_label(), engine.context());
  for (const std::string& warning : info.warnings) fmt::print(stderr, "warning: {}\n", warning);
}

nlohmann::ordered_json result_json(const std::string& text, const TextEnd& end) {
  const Timings& t = end.timings;
  const auto rate = [](int tokens, double ms) { return ms > 0 ? tokens * 1000.0 / ms : 0.0; };
  return {{"text", text},
          {"reasoning", nullptr},
          {"finish_reason", end.finish},
          {"usage",
           {{"prompt_tokens", t.prompt_tokens},
            {"completion_tokens", t.generated_tokens},
            {"total_tokens", t.prompt_tokens + t.generated_tokens},
            {"cached_tokens", t.cached_tokens}}},
          {"timings",
           {{"prompt_ms", t.prompt_ms},
            {"prompt_per_second", rate(t.prompt_tokens - t.cached_tokens, t.prompt_ms)},
            {"predicted_ms", t.decode_ms},
            {"predicted_per_second", rate(t.generated_tokens, t.decode_ms)}}},
          {"seed", end.seed}};
}

int answer_once(Engine& engine, Conversation& conversation, const Flags& flags, const std::string& prompt) {
  const Interrupt interrupt;
  const TextEnd end = conversation.answer(prompt, [&](const std::string& piece) {
    if (flags.json) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  });
  const std::string& text = conversation.last_text();
  if (flags.json) {
    const auto json = result_json(text, end).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
    fmt::print("{}\n", json);
  } else if (!text.empty() && text.back() != '\n') {
    std::fputc('\n', stdout);
  }
  std::fflush(stdout);
  if (std::ferror(stdout)) fail(ErrorKind::internal, "stdout: the answer could not be written");
  if (!flags.model.quiet) fmt::print(stderr, "{}\n", statistics_line(end));
  (void)engine;
  return end.finish == "cancelled" ? 130 : 0;
}

int command(Door door, int argc, char** argv) {
  const char* name = door == Door::run ? "run" : door == Door::generate ? "generate" : "chat";
  Flags flags;
  CLI::App app(door == Door::chat ? "Chat with a model in the terminal."
                                  : "Answer a prompt, or chat when none is given.",
               fmt::format("mlxcel {}", name));
  configure(app, door == Door::run
                     ? "  mlxcel run -p \"What is the capital of France?\"\n"
                       "  mlxcel run owner/name            chat with another model\n"
                       "  git diff | mlxcel run --system \"Summarise this change.\"\n"
                     : "  mlxcel generate -m ./model -p \"Once upon a time\" --no-chat-template -n 64\n"
                       "  mlxcel generate -m model.gguf -f prompt.txt --json\n");
  add_source_flags(app, flags.model, door == Door::run);
  if (door != Door::chat) {
    app.add_option("-p,--prompt", flags.prompt, "the prompt; - reads it from stdin")
        ->type_name("TEXT")
        ->group("Prompt");
    app.add_option("-f,--file", flags.file, "a file with the prompt; with -p the file comes first")
        ->type_name("PATH")
        ->group("Prompt");
    app.add_flag("--json", flags.json, "one JSON object instead of text")->group("Output");
  }
  app.add_option("--system,--system-prompt,--sys", flags.system, "system message")
      ->type_name("TEXT")
      ->group("Prompt");
  app.add_flag("--no-chat-template", flags.no_template, "give the model the prompt as it is")
      ->group("Prompt");
  app.add_option(
         "-n,--max-tokens,--n-predict", flags.max_tokens,
         "at most this many tokens; -1: to the end token or a full window; 0: evaluate the prompt only")
      ->type_name("N")
      ->capture_default_str()
      ->group("Prompt");
  app.add_option("-r,--reverse-prompt", flags.stops, "stop at this string; repeatable")
      ->type_name("S")
      ->group("Prompt")
      ->take_all();
  add_sampling_flags(app, flags.sampling);
  add_runtime_flags(app, flags.model);
  parse(app, argc, argv);

  if (flags.model.model.empty()) {
    if (door != Door::run) throw UsageError(fmt::format("{}: -m, --model is required", name));
    flags.model.model = kDefaultModel;
  }
  if (flags.max_tokens < -1)
    throw UsageError(fmt::format("--max-tokens {}: expected -1 or more", flags.max_tokens));
  if (flags.no_template && !flags.system.empty())
    throw UsageError("--system needs the chat template; --no-chat-template leaves it out");
  for (const std::string& stop : flags.stops)
    if (stop.empty()) throw UsageError("--reverse-prompt: an empty stop string would stop at once");
  sampling_params(flags.sampling,
                  Config::parse("{}", "flags"));  // a bad flag ends here, before a model is touched
  EngineOptions options = engine_options(flags.model);
  checked_reference(flags.model);
  const auto prompt = whole_prompt(flags, door);
  if (flags.json && !prompt) throw UsageError("--json needs a prompt (-p, -f or stdin)");
  if (!prompt && !stdin_is_terminal())
    throw UsageError("chat needs a terminal on stdin; give a prompt with `mlxcel generate -p`");

  options.parallel = 1;
  const auto engine = load_engine(flags.model, options);
  if (engine->info().encoder)
    fail(ErrorKind::unsupported, "{} is an encoder and writes no text; use `mlxcel embed`",
         engine->info().model_type);
  if (!flags.model.quiet) print_banner(*engine);

  TurnOptions turn;
  turn.sampling = sampling_params(flags.sampling, engine->checkpoint().generation_config);
  if (flags.sampling.ignore_eos) turn.sampling.banned = engine->eos();
  turn.max_tokens = flags.max_tokens;
  turn.stops = flags.stops;
  turn.raw = flags.no_template;
  validate(turn.sampling, engine->info().vocab_size);
  Conversation conversation(*engine, turn);
  if (!flags.system.empty()) conversation.set_system(flags.system);
  if (conversation.without_template())
    fmt::print(stderr,
               "warning: this model has no chat template and is probably a base model; turns are built as "
               "\"User:\" and \"Assistant:\" lines (--no-chat-template gives it the text as it is)\n");
  if (prompt) return answer_once(*engine, conversation, flags, *prompt);
  return run_repl(conversation, flags.model.quiet);
}

}  // namespace

int run_command(int argc, char** argv) { return command(Door::run, argc, argv); }
int generate_command(int argc, char** argv) { return command(Door::generate, argc, argv); }
int chat_command(int argc, char** argv) { return command(Door::chat, argc, argv); }

}  // namespace mlxcel::app
