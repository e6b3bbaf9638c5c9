// `run`, `generate` and `chat`: one engine, three front doors (docs: cli.md section 4).
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/conversation.h"
#include "app/estimate.h"
#include "app/markdown.h"
#include "app/options.h"
#include "app/recommend.h"
#include "app/repl.h"
#include "app/rope_flags.h"
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
  bool json = false, profile = false;
  bool estimate = false, force = false, recommend = false;
  std::string chat_template, chat_template_file, chat_template_kwargs;
  RopeFlags rope;
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

/// --profile: where the time went.
void print_profile(const Engine& engine, const TextEnd& end) {
  const Timings& t = end.timings;
  const EngineStats stats = engine.stats();
  const double total = stats.prompt_seconds + stats.decode_seconds;
  fmt::print(stderr,
             "profile: queue {:.1f} ms, prefill {:.1f} ms ({} tokens, {} cached), decode {:.1f} ms ({} "
             "tokens, {:.2f} "
             "ms each), {} steps; kernels {:.1f} % of the steps' time, the rest between them\n",
             t.queue_ms, t.prompt_ms, t.prompt_tokens, t.cached_tokens, t.decode_ms, t.generated_tokens,
             t.generated_tokens > 0 ? t.decode_ms / t.generated_tokens : 0.0, stats.steps,
             total > 0 ? 100 * stats.kernel_seconds / total : 0.0);
}

int answer_once(Engine& engine, Conversation& conversation, const Flags& flags, const std::string& prompt) {
  const Interrupt interrupt;
  const bool colours = styled(stdout_is_terminal()) && !flags.json;
  MarkdownPainter painter;
  const auto print = [&](const std::string& piece) {
    if (flags.json) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  const TextEnd end = conversation.answer(
      prompt, [&](const std::string& piece) { print(colours ? painter.push(piece) : piece); });
  print(painter.finish());
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
  if (flags.profile) print_profile(engine, end);
  if (end.finish == "cancelled") throw Interrupted{};
  return 0;
}

void check_template_flags(Flags& flags) {
  if (!flags.chat_template.empty() && !flags.chat_template_file.empty())
    throw UsageError("--chat-template and --chat-template-file: give one of them");
  const bool any = !flags.chat_template.empty() || !flags.chat_template_file.empty() ||
                   !flags.chat_template_kwargs.empty();
  if (any && flags.no_template)
    throw UsageError("--no-chat-template leaves out what --chat-template* change");
  if (!flags.chat_template_file.empty())
    flags.chat_template = text_file(flags.chat_template_file, "--chat-template-file", size_t{1} << 20);
  if (!flags.chat_template_kwargs.empty() &&
      !nlohmann::json::parse(flags.chat_template_kwargs, nullptr, false).is_object())
    throw UsageError(
        "--chat-template-kwargs: expected a JSON object, for example {\"enable_thinking\": false}");
}

/// Prints what the model would need; over budget is an error unless forced.
void preflight(const Flags& flags, const std::filesystem::path& path) {
  const Checkpoint checkpoint = open_checkpoint(path);
  const ModelPlan plan = plan_model(checkpoint.config, checkpoint.source);
  const int window = flags.model.context > 0       ? flags.model.context
                     : plan.info.max_positions > 0 ? plan.info.max_positions
                                                   : 4096;
  const Estimate e = estimate_memory(plan, checkpoint.config, kv_dtype(plan, flags.model.kv_cache_mode),
                                     static_cast<std::uintmax_t>(window), 1,
                                     static_cast<std::uintmax_t>(flags.model.prefill_chunk));
  fmt::print(stderr, "{}", estimate_text(plan, e, static_cast<std::uintmax_t>(window), 1));
  if (!e.fits && !flags.force)
    fail(ErrorKind::out_of_memory,
         "{}: needs {}, {} are available; a smaller --ctx-size may fit, --force tries it "
         "all the same",
         path.filename().string(), human_bytes(e.total), human_bytes(e.budget));
}

/// Naming hints, since base and chat models of one family differ by a word.
std::string base_model_hint(const std::string& family) {
  if (family.starts_with("qwen")) return "Qwen's chat models end in -Instruct or -Chat, or have no -Base";
  if (family.starts_with("gemma")) return "Gemma's chat models end in -it, base models in -pt";
  if (family == "llama" || family.starts_with("mistral"))
    return "chat models of this family end in -Instruct, -Chat or -it";
  return "chat models usually carry -Instruct, -Chat or -it in their name";
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
  app.add_option("--chat-template", flags.chat_template, "template text (Jinja) instead of the model's")
      ->type_name("TEXT")
      ->group("Prompt");
  app.add_option("--chat-template-file", flags.chat_template_file, "the same from a file")
      ->type_name("FILE")
      ->group("Prompt");
  app.add_option("--chat-template-kwargs", flags.chat_template_kwargs,
                 "variables for the template, a JSON object")
      ->type_name("JSON")
      ->group("Prompt");
  add_sampling_flags(app, flags.sampling);
  add_runtime_flags(app, flags.model);
  app.add_option("--surgery", flags.model.surgery,
                 "edit weights while loading, by a YAML file (also MLXCEL_SURGERY)")
      ->type_name("FILE")
      ->group("Run time");
  add_rope_flags(app, flags.rope);
  app.add_flag("--estimate-memory", flags.estimate, "print what the model needs and stop if it does not fit")
      ->group("Memory");
  app.add_flag("--force,--no-memory-check", flags.force, "go on although the estimate is over the budget")
      ->group("Memory");
  app.add_flag("--recommend-quant", flags.recommend,
               "advice on quantisation and KV mode from config.json, then exit")
      ->group("Memory");
  app.add_flag("--profile", flags.profile, "print where the time went")->group("Output");
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
  try {  // a bad flag ends here, before a model is touched
    validate(sampling_params(flags.sampling, Config::parse("{}", "flags")), std::numeric_limits<int>::max());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  check(flags.rope);
  check_template_flags(flags);
  EngineOptions options = engine_options(flags.model);
  checked_reference(flags.model);
  if (flags.recommend) {
    fmt::print("{}", recommendation(resolve(flags.model), flags.model.context));
    return 0;
  }
  const auto prompt = whole_prompt(flags, door);
  if (flags.json && !prompt) throw UsageError("--json needs a prompt (-p, -f or stdin)");
  if (!prompt && !stdin_is_terminal())
    throw UsageError("chat needs a terminal on stdin; give a prompt with `mlxcel generate -p`");

  options.parallel = 1;
  CheckpointEdit edit;
  if (flags.rope.any()) edit = [&](Checkpoint& checkpoint) { override_rope(checkpoint, flags.rope); };
  if (flags.estimate) preflight(flags, resolve(flags.model));
  const auto engine = load_engine(flags.model, options, edit);
  require_rotary(engine->checkpoint(), flags.rope);
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
  turn.template_kwargs = flags.chat_template_kwargs;
  if (!flags.chat_template.empty()) {
    const Tokenizer& tokenizer = *engine->tokenizer();
    const auto text = [&](std::optional<TokenId> id) {
      return id ? tokenizer.token_text(*id) : std::string();
    };
    turn.chat_template =
        ChatTemplate::from_text(flags.chat_template, text(tokenizer.bos()), text(tokenizer.eos()));
  }
  validate(turn.sampling, engine->info().vocab_size);
  Conversation conversation(*engine, turn);
  if (!flags.system.empty()) conversation.set_system(flags.system);
  if (conversation.without_template())
    fmt::print(
        stderr,
        "warning: this model has no chat template and is probably a base model ({}); turns are built as "
        "\"User:\" and \"Assistant:\" lines (--no-chat-template gives it the text as it is)\n",
        base_model_hint(engine->info().family));
  if (prompt) return answer_once(*engine, conversation, flags, *prompt);
  return run_repl(conversation, flags.model.quiet);
}

}  // namespace

int run_command(int argc, char** argv) { return command(Door::run, argc, argv); }
int generate_command(int argc, char** argv) { return command(Door::generate, argc, argv); }
int chat_command(int argc, char** argv) { return command(Door::chat, argc, argv); }

}  // namespace mlxcel::app
