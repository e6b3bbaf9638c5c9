#include "app/generate_flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/command_words.h"
#include "app/options.h"
#include "app/serve_options.h"
#include "app/terminal.h"

namespace mlxcel::app {
namespace {

constexpr size_t kMostPromptBytes = size_t{64} << 20;

std::string read_all(std::istream& in, const std::string& where) {
  std::string text;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(in.gcount()));
    if (text.size() > kMostPromptBytes)
      throw UsageError(fmt::format("{}: a prompt of over {} MiB", where, kMostPromptBytes >> 20));
  }
  // The stream of stdin does not tell; the file below it does.
  if (in.bad() || (&in == &std::cin && std::ferror(stdin)))
    throw Error(ErrorKind::invalid_request, fmt::format("{}: could not be read", where));
  return text;
}

/// The line break that ends a file or an echo is no part of what is asked.
std::string prompt_from(std::istream& in, const std::string& where) {
  std::string text = read_all(in, where);
  const bool lines = text.ends_with('\n');
  if (lines) text.pop_back();
  if (lines && text.ends_with('\r')) text.pop_back();
  return text;
}

std::string prompt_file(const std::string& path) {
  std::error_code error;
  const std::string flag = as_typed("--file");
  if (std::filesystem::is_directory(path, error))
    throw UsageError(fmt::format("{} {}: is a directory", flag, path));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("{} {}: cannot be opened", flag, path));
  return prompt_from(in, path);
}

void add_prompt_flags(CLI::App& app, SharedFlags& shared, GenerateFlags& flags, Door door) {
  const char* group = "Prompt";
  if (door != Door::chat) {
    app.add_option("-p,--prompt", flags.prompt, "the prompt; - reads it from stdin")
        ->type_name("TEXT")
        ->group(group);
    app.add_option("-f,--file", flags.file, "a file with the prompt; with -p the file comes first")
        ->type_name("PATH")
        ->group(group);
    app.add_flag("--json", flags.json, "one JSON object instead of text")->group("Output");
  }
  app.add_option("--system,--system-prompt,--sys", flags.system, "system message")
      ->type_name("TEXT")
      ->group(group);
  app.add_option(
         "-n,--max-tokens,--n-predict", flags.max_tokens,
         "at most this many tokens; -1: to the end token or a full window; 0: evaluate the prompt only")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  shared.add(group, {{"--reverse-prompt", "stop at this string; repeatable"}});
  app.add_flag("--no-chat-template", flags.no_template, "give the model the prompt as it is")->group(group);
  shared.add(group, {{"--chat-template", "template text (Jinja) instead of the model's"},
                     {"--chat-template-file"},
                     {"--chat-template-kwargs", "variables for the template, a JSON object"}});
  const auto media = [&](const char* name, std::vector<std::string>& paths) {
    app.add_option(name, paths, "a file for models that take one; repeatable")
        ->type_name("PATH")
        ->take_all()
        ->group("Media");
  };
  media("--image", flags.images);
  media("--audio", flags.sounds);
  media("--video", flags.videos);
}

void add_reasoning_flags(CLI::App& app, SharedFlags& shared, GenerateFlags& flags) {
  const char* group = "Reasoning";
  shared.add(group, {{"--reasoning",
                      "let the model think before it answers; auto (default): as its template has it"},
                     {"--reasoning-effort", "how much, in the template's words; none: not at all"},
                     {"--reasoning-budget"},
                     {"--reasoning-budget-message"}});
  app.add_flag("--show-reasoning", flags.show_reasoning, "print the thoughts too (dimmed on a terminal)")
      ->group(group);
}

void add_engine_flags(CLI::App& app, SharedFlags& shared, GenerateFlags& flags) {
  shared.add("Run time",
             {{"--ctx-size", "context window in tokens; 0 (default): the model's"},
              {"--threads", "worker threads; 0 (default): the cores this process may use"},
              {"--cpu-precision"},
              {"--prefill-chunk-size", "prompt tokens per pass (2048); 0: one pass", "--prefill-chunk-size"},
              {"--no-warmup", "leave out the warm-up pass", "!--no-warmup"}});
  const char* group = "Drafting (answers do not change)";
  app.add_flag("--prompt-lookup", flags.prompt_lookup, "draft from what prompt and answer repeat")
      ->group(group);
  shared.add(group, {{"--draft-model", nullptr, "-md,--draft-model,--model-draft"},
                     {"--prompt-lookup-policy"},
                     {"--draft-kind"},
                     {"--draft-max"},
                     {"--draft-block-size"},
                     {"--draft-p-min", nullptr, "--draft-p-min"}});
  shared.add("Keys and values", {{"--kv-cache-mode"},
                                 {"--kv-bits"},
                                 {"--cache-type-k"},
                                 {"--cache-type-v"},
                                 {"--turbo-boundary-v"},
                                 {"--kv-skip-last-layer"},
                                 {"--max-kv-size", "no window is larger than this; 0 (default): no bound"}});
  shared.add("Prompts kept on disk",
             {{"--prompt-cache-dir"}, {"--prompt-cache-disk-bytes"}, {"--prompt-cache-disk-ttl"}});
  shared.add("Adapters (LoRA)", {{"--lora"}, {"--lora-scaled"}, {"--lora-fuse"}});
  shared.add("Loading", {{"--surgery"}, {"--estimate-memory"}, {"--force"}});
  app.add_flag("--recommend-quant", flags.recommend,
               "advice on quantisation and KV mode from config.json, then exit")
      ->group("Loading");
  shared.add("Positions (RoPE)", {{"--rope-scaling"},
                                  {"--rope-scale"},
                                  {"--rope-freq-base"},
                                  {"--rope-freq-scale"},
                                  {"--yarn-orig-ctx"},
                                  {"--yarn-ext-factor"},
                                  {"--yarn-attn-factor"},
                                  {"--yarn-beta-slow"},
                                  {"--yarn-beta-fast"}});
  shared.add("Diffusion Options", {{"--max-denoising-steps"},
                                   {"--diffusion-threshold"},
                                   {"--diffusion-sampler"},
                                   {"--diffusion-min-canvas-length"},
                                   {"--diffusion-max-canvas-length"},
                                   {"--diffusion-full-canvas"}});
  // Known, and answered with what they wait for.
  shared.add("", {{"--tp-size"},
                  {"--tp-moe-mode"},
                  {"--tp-embedding-mode"},
                  {"--tp-lm-head-mode"},
                  {"--pp-size"},
                  {"--pp-layers"},
                  {"--pp-micro-batch-size"},
                  {"--image-soft-tokens"},
                  {"--image-min-tokens"},
                  {"--image-max-tokens"},
                  {"--fps"},
                  {"--video-max-frames"},
                  {"--layout-detections"},
                  {"--output-audio"},
                  {"--extra-decoding-seconds"},
                  {"--stream"},
                  {"--max-streaming-seconds"},
                  {"--language"},
                  {"--translate"},
                  {"--format"}});
}

void check_template_flags(GenerateFlags& flags) {
  auto& service = flags.state.serve.service;
  const std::string& file = flags.state.chat_template_file;
  if (!service.chat_template.empty() && !file.empty())
    throw UsageError("--chat-template and --chat-template-file: give one of them");
  const bool any = !service.chat_template.empty() || !file.empty() || !service.chat_template_kwargs.empty();
  if (any && flags.no_template)
    throw UsageError("--no-chat-template leaves out what --chat-template* change");
  if (flags.no_template && !flags.system.empty())
    throw UsageError("--system needs the chat template; --no-chat-template leaves it out");
  if (flags.no_template && (!flags.state.serve.template_variables.empty() || service.reasoning_budget >= 0))
    throw UsageError("--no-chat-template leaves out what --reasoning* change");
  if (!file.empty()) service.chat_template = text_file(file, "--chat-template-file", size_t{1} << 20);
  if (!service.chat_template_kwargs.empty() &&
      !nlohmann::json::parse(service.chat_template_kwargs, nullptr, false).is_object())
    throw UsageError(
        "--chat-template-kwargs: expected a JSON object, for example {\"enable_thinking\": false}");
  merge_variables(flags.state.serve);
}

void check_media(const GenerateFlags& flags) {
  const auto each = [](const std::vector<std::string>& paths, const char* flag) {
    for (const std::string& path : paths)
      if (std::error_code error; !std::filesystem::is_regular_file(path, error))
        throw UsageError(fmt::format("{} {}: not a file", flag, path));
  };
  each(flags.images, "--image");
  each(flags.sounds, "--audio");
  each(flags.videos, "--video");
}

void check(GenerateFlags& flags, Door door) {
  auto& serve = flags.state.serve;
  if (serve.model.model.empty()) {
    if (door != Door::run) throw UsageError(fmt::format("{}: -m, --model is required", to_string(door)));
    serve.model.model = kDefaultModel;
  }
  if (flags.max_tokens < -1)
    throw UsageError(fmt::format("{} {}: expected -1 or more", as_typed("--max-tokens"), flags.max_tokens));
  for (std::string& stop : flags.state.reverse_prompts) {
    if (stop.empty())
      throw UsageError(
          fmt::format("{}: an empty stop string would stop at once", as_typed("--reverse-prompt")));
    stop = unescaped(stop);
  }
  try {
    check_sampling(sampling_params(flags.state, Config::parse("{}", "flags")),
                   std::numeric_limits<int>::max());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  read_language_bias(flags.state);
  check_template_flags(flags);
  check_media(flags);
  if (flags.prompt_lookup && serve.draft.kind != "auto" && serve.draft.kind != "prompt-lookup")
    throw UsageError(fmt::format("--prompt-lookup and --draft-kind {}: give one of them", serve.draft.kind));
  if (flags.prompt_lookup) serve.draft.kind = "prompt-lookup";
  settle_engine_flags(flags.state);
}

}  // namespace

const char* to_string(Door door) {
  return door == Door::run ? "run" : door == Door::generate ? "generate" : "chat";
}

GenerateFlags parse_generate_flags(Door door, int argc, char** argv) {
  GenerateFlags flags;
  CLI::App app(door == Door::chat ? "Chat in the terminal." : "Answer a prompt, or chat when none is given.",
               fmt::format("mlxcel {}", to_string(door)));
  configure(app, door == Door::run ? "  mlxcel run -p \"What is the capital of France?\"\n"
                                     "  mlxcel run owner/name            chat with another model\n"
                                     "  git diff | mlxcel run --system \"Summarise this change.\"\n"
                                     "  mlxcel run -p \"Three colours\" -j '{\"type\": \"array\", \"items\": "
                                     "{\"type\": \"string\"}}'\n"
                 : door == Door::generate
                     ? "  mlxcel generate -m ./model -p \"Once upon a time\" --no-chat-template -n 64\n"
                       "  mlxcel generate -m model.gguf -f prompt.txt --json\n"
                     : "  mlxcel chat -m SmolLM2-135M-Instruct --system \"Be brief.\"\n"
                       "  mlxcel chat -m ./model --temp 0.7 --top-p 0.9 --show-reasoning\n");
  SharedFlags shared(app, flags.state);
  add_source_flags(app, flags.model(), door == Door::run);
  add_prompt_flags(app, shared, flags, door);
  add_reasoning_flags(app, shared, flags);
  add_grammar_flags(app, flags.grammar);
  add_sampling_flags(shared);
  add_engine_flags(app, shared, flags);
  app.add_flag("--profile", flags.profile, "print where the time went")->group("Output");
  app.add_flag("--quiet", flags.model().quiet, "no banner and no statistics")->group("Output");
  parse(app, argc, argv);
  check(flags, door);
  return flags;
}

std::optional<std::string> whole_prompt(const GenerateFlags& flags, Door door) {
  std::optional<std::string> text;
  if (!flags.file.empty()) text = prompt_file(flags.file);
  if (flags.prompt) {
    const std::string given = *flags.prompt == "-" ? prompt_from(std::cin, "stdin") : *flags.prompt;
    text = text ? *text + "\n" + given : given;
  }
  if (!text && door != Door::chat && !stdin_is_terminal()) {
    text = prompt_from(std::cin, "stdin");
    if (text->empty()) throw UsageError("nothing is asked: stdin is empty; give -p TEXT or -f FILE");
  }
  return text;
}

}  // namespace mlxcel::app
