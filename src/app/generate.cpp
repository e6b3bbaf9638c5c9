// `run`, `generate` and `chat`: one engine, three front doors (docs: cli.md section 4).
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/answer_printer.h"
#include "app/commands.h"
#include "app/conversation.h"
#include "app/environment.h"
#include "app/estimate.h"
#include "app/generate_flags.h"
#include "app/options.h"
#include "app/recommend.h"
#include "app/repl.h"
#include "app/say.h"
#include "app/terminal.h"
#include "base/clock.h"

namespace mlxcel::app {
namespace {

void print_banner(const Engine& engine) {
  const ModelInfo& info = engine.info();
  say("mlxcel {} | {} ({}) | {} | {} | KV {} | ctx {}\n", MLXCEL_VERSION, device_label(), MLXCEL_BACKEND_NAME,
      engine.checkpoint().path.filename().string(), info.weights_label, engine.kv_label(), engine.context());
  for (const std::string& note : environment_notes()) say("{}\n", note);
  for (const std::string& warning : engine.warnings()) say("warning: {}\n", warning);
}

nlohmann::ordered_json result_json(const std::string& text, const std::string& thought, const TextEnd& end) {
  using Json = nlohmann::ordered_json;
  const Timings& t = end.timings;
  const auto rate = [](int tokens, double ms) { return ms > 0 ? tokens * 1000.0 / ms : 0.0; };
  return {{"text", text},
          {"reasoning", thought.empty() ? Json(nullptr) : Json(thought)},
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
            {"predicted_per_second", rate(t.generated_tokens, t.decode_ms)},
            {"draft_n", t.drafted},
            {"draft_n_accepted", t.accepted}}},
          {"seed", end.seed}};
}

/// --profile: where the time went.
void print_profile(const Engine& engine, const TextEnd& end) {
  const Timings& t = end.timings;
  const EngineStats stats = engine.stats();
  const double total = stats.prompt_seconds + stats.decode_seconds;
  say("profile: queue {:.1f} ms, prefill {:.1f} ms ({} tokens, {} cached), decode {:.1f} ms ({} "
      "tokens, {:.2f} "
      "ms each), {} steps; kernels {:.1f} % of the steps' time, the rest between them\n",
      t.queue_ms, t.prompt_ms, t.prompt_tokens, t.cached_tokens, t.decode_ms, t.generated_tokens,
      t.generated_tokens > 0 ? t.decode_ms / t.generated_tokens : 0.0, stats.steps,
      total > 0 ? 100 * stats.kernel_seconds / total : 0.0);
}

/// MLXCEL_PROFILE_TTFT: what lies before the first token.
void print_first_token(double load_ms, const TextEnd& end) {
  const Timings& t = end.timings;
  say("profile: first token: load {:.1f} ms, queue {:.1f} ms, prompt {:.1f} ms ({} tokens, {} cached)\n",
      load_ms, t.queue_ms, t.prompt_ms, t.prompt_tokens, t.cached_tokens);
}

int answer_once(Engine& engine, Conversation& conversation, const GenerateFlags& flags,
                const std::string& prompt, double load_ms) {
  const Interrupt interrupt;
  AnswerPrinter printer(flags.show_reasoning);
  const TextEnd end = conversation.answer(prompt, [&](const std::string& piece, bool thought) {
    if (!flags.json) printer.print(piece, thought);
  });
  printer.finish();
  const std::string& text = conversation.last_text();
  if (flags.json) {
    const auto json = result_json(text, conversation.last_thought(), end);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (!text.empty() && text.back() != '\n') {
    std::fputc('\n', stdout);
  }
  const bool quiet = flags.model().quiet;
  const std::string drafts = engine.draft_kind();
  if (!drafts.empty() && !flags.json && !quiet)
    fmt::print("{}\n", speculation_line(end, drafts == "prompt-lookup"));
  std::fflush(stdout);
  if (std::ferror(stdout)) fail(ErrorKind::internal, "stdout: the answer could not be written");
  if (!quiet) say("{}\n", statistics_line(end));
  if (flags.profile || variable_is_on("MLXCEL_PROFILE")) print_profile(engine, end);
  if (variable_is_on("MLXCEL_PROFILE_TTFT")) print_first_token(load_ms, end);
  if (end.finish == "cancelled") throw Interrupted{};
  return 0;
}

/// Naming hints, since base and chat models of one family differ by a word.
std::string base_model_hint(const std::string& family) {
  if (family.starts_with("qwen")) return "Qwen's chat models end in -Instruct or -Chat, or have no -Base";
  if (family.starts_with("gemma")) return "Gemma's chat models end in -it, base models in -pt";
  if (family == "llama" || family.starts_with("mistral"))
    return "chat models of this family end in -Instruct, -Chat or -it";
  return "chat models usually carry -Instruct, -Chat or -it in their name";
}

TurnOptions turn_options(const GenerateFlags& flags, const Engine& engine) {
  const ServiceOptions& service = flags.state.serve.service;
  TurnOptions turn;
  turn.sampling =
      checked_sampling(flags.state, engine.checkpoint().generation_config, engine.info().vocab_size);
  turn.ignore_eos = service.sampling.ignore_eos;
  turn.max_tokens = flags.max_tokens;
  turn.stops = flags.state.reverse_prompts;
  turn.raw = flags.no_template;
  turn.template_kwargs = service.chat_template_kwargs;
  turn.thought_budget = service.reasoning_budget;
  turn.budget_message = unescaped(service.reasoning_budget_message);
  if (!service.chat_template.empty()) {
    const Tokenizer& tokenizer = *engine.tokenizer();
    const auto text = [&](std::optional<TokenId> id) {
      return id ? tokenizer.token_text(*id) : std::string();
    };
    turn.chat_template =
        ChatTemplate::from_text(service.chat_template, text(tokenizer.bos()), text(tokenizer.eos()));
  }
  return turn;
}

int command(Door door, int argc, char** argv) {
  GenerateFlags flags = parse_generate_flags(door, argc, argv);
  const ServeFlags& serve = flags.state.serve;
  const auto constraint = constraint_of(flags.grammar);
  engine_options(flags.model());  // what is wrong with a flag ends here
  checked_reference(flags.model());
  refuse_media("--image", flags.images);
  refuse_media("--audio", flags.sounds);
  refuse_media("--video", flags.videos);
  if (flags.recommend) {
    fmt::print("{}", recommendation(resolve(flags.model()), flags.model().context));
    return 0;
  }
  const auto prompt = whole_prompt(flags, door);
  if (flags.json && !prompt) throw UsageError("--json needs a prompt (-p, -f or stdin)");
  if (!prompt && !stdin_is_terminal())
    throw UsageError("chat needs a terminal on stdin; give a prompt with `mlxcel generate -p`");

  EngineOptions options = engine_options(serve);
  options.parallel = 1;
  if (prompt) options.warmup_prompt = 0;  // the answer's own prompt is the first
  options.model = resolve(flags.model());
  if (flags.model().estimate)
    preflight(flags.model(), options.model, 1, options.max_kv_size, {options.draft_model, options.adapters});
  const TimePoint begun = Clock::now();
  const auto engine = load_engine(flags.model(), options);
  const double load_ms = milliseconds_between(begun, Clock::now());
  if (engine->info().encoder)
    fail(ErrorKind::unsupported, "{} is an encoder and writes no text; use `mlxcel embed`",
         engine->info().model_type);
  if (!flags.model().quiet) print_banner(*engine);

  TurnOptions turn = turn_options(flags, *engine);
  if (constraint) turn.grammar = engine->compile(*constraint);
  Conversation conversation(*engine, turn);
  if (!flags.system.empty()) conversation.set_system(flags.system);
  if (conversation.without_template())
    say("warning: this model has no chat template and is probably a base model ({}); turns are built as "
        "\"User:\" and \"Assistant:\" lines (--no-chat-template gives it the text as it is)\n",
        base_model_hint(engine->info().family));
  if (prompt) return answer_once(*engine, conversation, flags, *prompt, load_ms);
  return run_repl(*engine, conversation, flags);
}

}  // namespace

int run_command(int argc, char** argv) { return command(Door::run, argc, argv); }
int generate_command(int argc, char** argv) { return command(Door::generate, argc, argv); }
int chat_command(int argc, char** argv) { return command(Door::chat, argc, argv); }

}  // namespace mlxcel::app
