// Rows of the table: how requests run, how they are drawn and read, what is shown of it.
#include "app/flags/flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "api/json_writer.h"

namespace mlxcel::app {
namespace {

using Kind = Flag::Kind;
using S = FlagState;
constexpr long long kMany = 1ll << 30;

void set_reasoning(S& s, const std::string& word) {
  if (word == "auto") return;
  for (const char* name : {"enable_thinking", "thinking"})
    s.serve.template_variables.emplace_back(name, word == "on" ? "true" : "false");
}

/// ID(+/-)BIAS, as llama.cpp spells it: 15043+1, 15043-1.5, 15043-inf.
void set_logit_bias(S& s, const Flag& flag, const std::string& text) {
  const auto sign = text.find_first_of("+-", 1);
  int id = -1;
  float bias = std::numeric_limits<float>::quiet_NaN();
  if (sign != std::string::npos) {
    const auto parsed = std::from_chars(text.data(), text.data() + sign, id);
    if (parsed.ec != std::errc{} || parsed.ptr != text.data() + sign) id = -1;
    const char* begin = text.data() + sign + (text[sign] == '+' ? 1 : 0);
    const char* end = text.data() + text.size();
    const auto value = std::from_chars(begin, end, bias);
    const bool finite = std::isfinite(bias) || text.substr(sign) == "-inf";
    if (value.ec != std::errc{} || value.ptr != end || !finite)
      bias = std::numeric_limits<float>::quiet_NaN();
  }
  if (id < 0 || std::isnan(bias))
    throw UsageError(fmt::format("{} {}: expected TOKEN_ID+BIAS or TOKEN_ID-BIAS, for example 15043-1.5",
                                 flag.name(), text.substr(0, 80)));
  if (std::isfinite(bias) && std::abs(bias) > 100)
    throw UsageError(
        fmt::format("{} {}: expected a bias from -100 to 100, or -inf", flag.name(), text.substr(0, 80)));
  auto& sampling = s.serve.service.sampling;
  if (std::isfinite(bias))
    sampling.logit_bias[id] = bias;
  else
    sampling.banned.push_back(id);
}

/// "top_k;temperature".
void set_stages(S& s, const Flag& flag, const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    if (end > at) names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  try {
    s.serve.service.sampling.samplers = parse_stages(names, flag.name());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// "kt".
void set_stage_letters(S& s, const Flag& flag, const std::string& text) {
  try {
    s.serve.service.sampling.samplers = parse_stage_letters(text, flag.name());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_run_flags(std::vector<Flag>& f) {
  const char* g = "Run time";
  f.push_back({"-c,--ctx-size", "LLAMA_ARG_CTX_SIZE", g, Kind::value, "N",
               "tokens of all slots together; 0 (default): the model's window per slot",
               integer(0, kMany, [](S& s, long long n) { s.serve.model.context = static_cast<int>(n); })});
  f.push_back(
      {"--max-kv-size", "", g, Kind::value, "N", "no slot's window is larger; 0 (default): no bound",
       integer(0, kMany, [](S& s, long long n) { s.serve.engine.max_kv_size = static_cast<int>(n); })});
  f.push_back({"--context-shift,!--no-context-shift", "LLAMA_ARG_CONTEXT_SHIFT", g, Kind::toggle, "",
               "a full window forgets its oldest tokens instead of ending the answer (default: off)",
               onoff([](S& s, bool on) { s.serve.engine.context_shift = on; })});
  f.push_back({"--keep", "", g, Kind::value, "N", "first tokens that then stay (0); -1: the whole prompt",
               integer(-1, kMany, [](S& s, long long n) { s.serve.service.keep = static_cast<int>(n); })});
  f.push_back({"-np,--parallel,--n-parallel", "LLAMA_ARG_N_PARALLEL", g, Kind::value, "N",
               "sequences at once; -1 (default): 4",
               integer(-1, 1024, [](S& s, long long n) { s.serve.parallel = static_cast<int>(n); })});
  f.push_back({"--max-queue-depth", "", g, Kind::value, "N", "requests that may wait for a slot (32)",
               integer(1, 65536, [](S& s, long long n) { s.serve.max_queue = static_cast<int>(n); })});
  f.push_back(
      {"-b,--batch-size,--prefill-chunk-size", "MLXCEL_PREFILL_CHUNK,LLAMA_ARG_BATCH,LLAMA_ARG_BATCH_SIZE", g,
       Kind::value, "N", "prompt tokens of a request in one step (2048); 0: whole prompts",
       integer(0, kMany, [](S& s, long long n) { s.serve.model.prefill_chunk = static_cast<int>(n); })});
  f.push_back({"-ub,--ubatch-size,--step-token-budget", "MLXCEL_STEP_TOKEN_BUDGET,LLAMA_ARG_UBATCH", g,
               Kind::value, "N", "tokens of a step while answers run; auto (default): learned",
               text([](S& s, const auto& v) { s.serve.step_token_budget = v; })});
  f.push_back({"--max-token-gap", "MLXCEL_MAX_TOKEN_GAP", g, Kind::value, "MS",
               "milliseconds between tokens that auto aims at (100)",
               integer(1, 60000, [](S& s, long long n) { s.serve.max_token_gap = static_cast<int>(n); })});
  f.push_back({"--max-concurrent-per-key", "MLXCEL_MAX_CONCURRENT_PER_KEY", g, Kind::value, "N",
               "running requests of one API key while others wait; 0 (default): any number",
               integer(0, 65536, [](S& s, long long n) { s.serve.max_per_key = static_cast<int>(n); })});
  f.push_back({"--prompt-cache-enabled,!--no-prompt-cache", "MLXCEL_PROMPT_CACHE_ENABLED", g, Kind::toggle,
               "", "keep what was evaluated for prompts that begin alike (default: on)",
               onoff([](S& s, bool on) { s.serve.prompt_cache = s.serve.prompt_cache && on; })});
  f.push_back({"--cache-prompt,!--no-cache-prompt", "LLAMA_ARG_CACHE_PROMPT", g, Kind::toggle, "", "the same",
               onoff([](S& s, bool on) { s.serve.prompt_cache = s.serve.prompt_cache && on; })});
  f.push_back({"-cram,--cache-ram", "LLAMA_ARG_CACHE_RAM", g, Kind::value, "MIB",
               "memory for kept prefixes; 0: none, -1 (default): as memory allows",
               integer(-1, kMany, [](S& s, long long n) {
                 if (n == 0)
                   s.serve.prompt_cache = false;
                 else
                   s.serve.prompt_cache_mib = n;
               })});
  f.push_back({"--prompt-cache-capacity-bytes", "MLXCEL_PROMPT_CACHE_CAPACITY_BYTES", g, Kind::value, "N",
               "the same in bytes; wins over --cache-ram",
               byte_size([](S& s, size_t n) { s.serve.prompt_cache_bytes = n; })});
  f.push_back({"-n,--predict,--n-predict", "LLAMA_ARG_N_PREDICT", g, Kind::value, "N",
               "default cap on an answer; -1 (default): the window",
               integer(-1, kMany, [](S& s, long long n) { s.serve.service.predict = static_cast<int>(n); })});
  f.push_back({"-t,--threads", "LLAMA_ARG_THREADS", g, Kind::value, "N",
               "threads of the model; 0 (default): the cores this process may use",
               integer(-1, 4096,
                       [](S& s, long long n) { s.serve.model.threads = n < 0 ? 0 : static_cast<int>(n); })});
  f.push_back({"-tb,--threads-batch", "", g, Kind::value, "N",
               "the same threads serve prompts: -1 and 0 are accepted",
               inert({"-1", "0"}, "one pool of threads serves prompts and answers; use --threads")});
  f.push_back(
      {"--cpu-precision", "MLXCEL_CPU_PRECISION", g, Kind::value, "P", "high (default), fast or exact",
       word({"high", "fast", "exact"}, [](S& s, const auto& v) { s.serve.model.cpu_precision = v; })});
  f.push_back({"--rerank,--reranking", "LLAMA_ARG_RERANKING", g, Kind::toggle, "",
               "the model judges documents; needed where that cannot be seen from the checkpoint",
               onoff([](S& s, bool on) { s.serve.service.reranking_only = on; })});
  f.push_back(
      {"--pooling", "LLAMA_ARG_POOLING", g, Kind::value, "P",
       "embedding models: mean, cls or last (default: the checkpoint's); rank: the same as --reranking",
       word({"mean", "cls", "last", "rank"}, [](S& s, const auto& v) {
         if (v == "rank")
           s.serve.service.reranking_only = true;
         else
           s.serve.pooling = v;
       })});
  f.push_back({"-cb,--cont-batching,!-nocb,!--no-cont-batching", "LLAMA_ARG_CONT_BATCHING", g, Kind::toggle,
               "", "off: one answer at a time, others wait",
               onoff([](S& s, bool on) { s.serve.one_at_a_time = !on; })});
  f.push_back(
      {"--no-batch", "", g, Kind::toggle, "", "the same as --no-cont-batching", onoff([](S& s, bool on) {
         if (on) s.serve.one_at_a_time = true;
       })});
}

void add_answer_flags(std::vector<Flag>& f) {
  const char* g = "Sampling defaults (the checkpoint's where it has them)";
  f.push_back(
      {"--temp,--temperature", "LLAMA_ARG_TEMPERATURE", g, Kind::value, "F", "0: greedy (0.8)",
       real(0, 100, [](S& s, double x) { s.serve.service.sampling.temperature = static_cast<float>(x); })});
  f.push_back(
      {"--top-k", "LLAMA_ARG_TOP_K", g, Kind::value, "N", "0: off (40)",
       integer(0, kMany, [](S& s, long long n) { s.serve.service.sampling.top_k = static_cast<int>(n); })});
  f.push_back({"--top-p", "LLAMA_ARG_TOP_P", g, Kind::value, "F", "1: off (0.95)",
               real(0, 1, [](S& s, double x) { s.serve.service.sampling.top_p = static_cast<float>(x); })});
  f.push_back({"--min-p", "LLAMA_ARG_MIN_P", g, Kind::value, "F", "0: off (0.05)",
               real(0, 1, [](S& s, double x) { s.serve.service.sampling.min_p = static_cast<float>(x); })});
  f.push_back({"--repeat-penalty", "LLAMA_ARG_REPEAT_PENALTY", g, Kind::value, "F", "1: off (1)",
               real(0.01, 100, [](S& s, double x) {
                 s.serve.service.sampling.repeat_penalty = static_cast<float>(x);
               })});
  f.push_back({"--repeat-last-n", "", g, Kind::value, "N", "tokens that penalties look at; -1: all (64)",
               integer(-1, kMany, [](S& s, long long n) {
                 s.serve.service.sampling.repeat_last_n = static_cast<int>(n);
               })});
  f.push_back({"--frequency-penalty", "LLAMA_ARG_FREQUENCY_PENALTY", g, Kind::value, "F", "0: off (0)",
               real(-2, 2, [](S& s, double x) {
                 s.serve.service.sampling.frequency_penalty = static_cast<float>(x);
               })});
  f.push_back({"--presence-penalty", "LLAMA_ARG_PRESENCE_PENALTY", g, Kind::value, "F", "0: off (0)",
               real(-2, 2, [](S& s, double x) {
                 s.serve.service.sampling.presence_penalty = static_cast<float>(x);
               })});
  auto real_row = [&f, g](const char* names, const char* help, double low, double high,
                          std::optional<float> mlxcel::SamplingFlags::* field) {
    f.push_back({names, "", g, Kind::value, "F", help, real(low, high, [field](S& s, double x) {
                   s.serve.service.sampling.*field = static_cast<float>(x);
                 })});
  };
  auto whole_row = [&f, g](const char* names, const char* help, long long low, long long high,
                           std::optional<int> mlxcel::SamplingFlags::* field) {
    f.push_back({names, "", g, Kind::value, "N", help, integer(low, high, [field](S& s, long long n) {
                   s.serve.service.sampling.*field = static_cast<int>(n);
                 })});
  };
  real_row("--top-nsigma,--top-n-sigma", "keep logits this many deviations from the best; -1: off", -1, 1e9,
           &mlxcel::SamplingFlags::top_n_sigma);
  real_row("--typical,--typical-p", "1: off (1)", 0, 1, &mlxcel::SamplingFlags::typical_p);
  real_row("--xtc-probability", "0: off (0)", 0, 1, &mlxcel::SamplingFlags::xtc_probability);
  real_row("--xtc-threshold", "above 0.5: off (0.1)", 0, 1, &mlxcel::SamplingFlags::xtc_threshold);
  real_row("--dry-multiplier", "0: off (0)", 0, 100, &mlxcel::SamplingFlags::dry_multiplier);
  real_row("--dry-base", "(1.75)", 1, 100, &mlxcel::SamplingFlags::dry_base);
  whole_row("--dry-allowed-length", "repeats up to this length are free (2)", 0, kMany,
            &mlxcel::SamplingFlags::dry_allowed_length);
  whole_row("--dry-penalty-last-n", "tokens that DRY looks at; -1: all (64)", -1, kMany,
            &mlxcel::SamplingFlags::dry_penalty_last_n);
  f.push_back(
      {"--dry-sequence-breaker,--dry-sequence-breakers", "", g, Kind::list, "S",
       "text that ends a repeat (\\n, \\t, \\r, \\\\ are read as escapes); repeatable; none: no breaker",
       text([](S& s, const auto& v) {
         auto& list = s.serve.service.sampling.dry_breakers;
         if (!list) list.emplace();
         if (v != "none") list->push_back(unescaped(v));
       })});
  real_row("--dynatemp-range", "temperature plus or minus this (0)", 0, 100,
           &mlxcel::SamplingFlags::dynatemp_range);
  real_row("--dynatemp-exp", "(1)", 0, 100, &mlxcel::SamplingFlags::dynatemp_exponent);
  whole_row("--mirostat", "1 or 2: replaces the stages after penalties; 0: off", 0, 2,
            &mlxcel::SamplingFlags::mirostat);
  real_row("--mirostat-lr", "learning rate (0.1)", 0, 1, &mlxcel::SamplingFlags::mirostat_eta);
  real_row("--mirostat-ent", "target surprise (5)", 0, 100, &mlxcel::SamplingFlags::mirostat_tau);
  real_row("--adaptive-target", "acts where the stages name adaptive_p; -1: off", -1, 1,
           &mlxcel::SamplingFlags::adaptive_target);
  real_row("--adaptive-decay", "(0.9)", 0, 0.99, &mlxcel::SamplingFlags::adaptive_decay);
  f.push_back({"--samplers", "", g, Kind::value, "A;B",
               "the stages in order: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
               set_stages});
  f.push_back({"--sampler-seq,--sampling-seq", "", g, Kind::value, "LETTERS",
               "the same by letters (edskypmxt)", set_stage_letters});
  f.push_back({"-s,--seed", "", g, Kind::value, "N", "-1 (default): random",
               integer(INT64_MIN, INT64_MAX, [](S& s, long long n) { s.seed = n; })});
  f.push_back({"-l,--logit-bias", "", g, Kind::list, "ID(+/-)BIAS",
               "TOKEN_ID+BIAS or TOKEN_ID-BIAS, for example 15043-1.5 or 2-inf; repeatable", set_logit_bias});
  f.push_back({"--ignore-eos", "", g, Kind::toggle, "", "go on past the end token",
               onoff([](S& s, bool on) { s.serve.service.sampling.ignore_eos = on; })});
  f.push_back({"--lang-bias", "LLAMA_ARG_LANG_BIAS", g, Kind::value, "L=V,..",
               "add to the logits of a language's tokens: ko=-inf,latin=2 (ISO 639-1 codes or scripts)",
               text([](S& s, const auto& v) { s.lang_bias = v; })});
  f.push_back({"--lang-bias-config", "", g, Kind::value, "FILE", "the same from a YAML file: policy and bias",
               text([](S& s, const auto& v) { s.lang_bias_file = v; })});
  f.push_back({"-e,--escape,!--no-escape", "", g, Kind::toggle, "",
               "read \\n, \\t, \\r, \\\\ in stop strings and in the budget's message (default: on)",
               onoff([](S& s, bool on) { s.escapes = on; })});
  f.push_back({"-r,--reverse-prompt", "", g, Kind::list, "S", "stop string of every request; repeatable",
               text([](S& s, const auto& v) { s.reverse_prompts.push_back(v); })});
  g = "Chat, thoughts, tools";
  f.push_back({"--chat-template", "LLAMA_ARG_CHAT_TEMPLATE", g, Kind::value, "TEXT",
               "template text instead of the model's",
               text([](S& s, const auto& v) { s.serve.service.chat_template = v; })});
  f.push_back({"--chat-template-file", "LLAMA_ARG_CHAT_TEMPLATE_FILE", g, Kind::value, "FILE",
               "the same from a file", text([](S& s, const auto& v) { s.chat_template_file = v; })});
  f.push_back({"--chat-template-kwargs", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", g, Kind::value, "JSON",
               "template variables (JSON object); a request's win",
               text([](S& s, const auto& v) { s.serve.service.chat_template_kwargs = v; })});
  f.push_back(
      {"--jinja,!--no-jinja", "LLAMA_ARG_JINJA", g, Kind::toggle, "",
       "render chats with the model's template (default: on); off: role-prefixed plain text, no tools",
       onoff([](S& s, bool on) { s.serve.service.jinja = on; })});
  f.push_back({"-rea,--reasoning", "LLAMA_ARG_REASONING", g, Kind::value, "on|off|auto",
               "writes the template's enable_thinking; auto (default): the template's own",
               word({"on", "off", "auto"}, set_reasoning)});
  f.push_back({"--reasoning-effort", "LLAMA_ARG_REASONING_EFFORT", g, Kind::value, "LEVEL",
               "writes the template's reasoning_effort; none also turns thinking off",
               text([](S& s, const auto& v) {
                 for (const char* name : {"reasoning_effort", "reasoning_strength"})
                   s.serve.template_variables.emplace_back(name, JsonWriter().value(v).take());
                 if (v == "none") set_reasoning(s, "off");
               })});
  f.push_back({"--reasoning-preserve,!--no-reasoning-preserve", "LLAMA_ARG_REASONING_PRESERVE", g,
               Kind::toggle, "", "writes the template's preserve_reasoning", onoff([](S& s, bool on) {
                 for (const char* name : {"preserve_reasoning", "preserve_thinking"})
                   s.serve.template_variables.emplace_back(name, on ? "true" : "false");
               })});
  f.push_back({"--reasoning-format", "LLAMA_ARG_THINK", g, Kind::value, "none|deepseek|deepseek-legacy|auto",
               "thoughts: deepseek (apart; auto, the default), none (in the content), deepseek-legacy (both)",
               word({"none", "deepseek", "deepseek-legacy", "auto"},
                    [](S& s, const auto& v) { s.serve.service.reasoning_format = v; })});
  f.push_back({"--reasoning-budget", "LLAMA_ARG_THINK_BUDGET,LLAMA_ARG_REASONING_BUDGET", g, Kind::value, "N",
               "thinking tokens; -1 (default): no limit, 0: none", integer(-1, kMany, [](S& s, long long n) {
                 s.serve.service.reasoning_budget = static_cast<int>(n);
               })});
  f.push_back({"--reasoning-budget-message", "LLAMA_ARG_THINK_BUDGET_MESSAGE", g, Kind::value, "S",
               "said before the end of a thought that was cut",
               text([](S& s, const auto& v) { s.serve.service.reasoning_budget_message = v; })});
  f.push_back({"--reasoning-alias-field", "MLXCEL_REASONING_ALIAS_FIELD", g, Kind::value, "reasoning|none",
               "reasoning (default) repeats reasoning_content; none",
               word({"none", "reasoning"},
                    [](S& s, const auto& v) { s.serve.service.reasoning_alias = v == "none" ? "" : v; })});
  f.push_back({"--skip-chat-parsing,!--no-skip-chat-parsing", "LLAMA_ARG_SKIP_CHAT_PARSING", g, Kind::toggle,
               "", "leave thoughts and calls in the content",
               onoff([](S& s, bool on) { s.serve.service.skip_chat_parsing = on; })});
  f.push_back({"--prefill-assistant,!--no-prefill-assistant", "LLAMA_ARG_PREFILL_ASSISTANT", g, Kind::toggle,
               "", "continue a trailing assistant message (default: on)",
               onoff([](S& s, bool on) { s.serve.service.prefill_assistant = on; })});
  f.push_back({"--spm-infill", "", g, Kind::toggle, "", "fill gaps as suffix, prefix, middle",
               onoff([](S& s, bool on) { s.serve.service.suffix_first = on; })});
  f.push_back({"-sp,--special", "", g, Kind::toggle, "", "special tokens appear in the text",
               onoff([](S& s, bool on) { s.serve.service.special = on; })});
  g = "What is kept";
  auto entries = [](auto pick) {
    return integer(0, kMany, [pick](S& s, long long n) { pick(s).entries = static_cast<size_t>(n); });
  };
  auto bytes = [](auto pick) { return byte_size([pick](S& s, size_t n) { pick(s).bytes = n; }); };
  auto seconds = [](auto pick) { return real(0, 1e9, [pick](S& s, double x) { pick(s).seconds = x; }); };
  auto responses = [](S& s) -> StoreLimits& { return s.serve.service.responses; };
  auto conversations = [](S& s) -> StoreLimits& { return s.serve.service.conversations; };
  f.push_back({"--responses-store-max-entries", "LLAMA_ARG_RESPONSES_STORE_MAX_ENTRIES", g, Kind::value, "N",
               "responses kept in memory (1024); 0: none", entries(responses)});
  f.push_back({"--responses-store-max-bytes", "MLXCEL_RESPONSES_STORE_MAX_BYTES", g, Kind::value, "N",
               "bytes of them (268435456)", bytes(responses)});
  f.push_back({"--responses-store-ttl-secs", "LLAMA_ARG_RESPONSES_STORE_TTL_SECS", g, Kind::value, "S",
               "how long (3600)", seconds(responses)});
  f.push_back({"--conversation-store-max-entries", "LLAMA_ARG_CONVERSATION_STORE_MAX_ENTRIES", g, Kind::value,
               "N", "conversations kept in memory (256)", entries(conversations)});
  f.push_back({"--conversation-store-max-bytes", "MLXCEL_CONVERSATION_STORE_MAX_BYTES", g, Kind::value, "N",
               "bytes of them (67108864)", bytes(conversations)});
  f.push_back({"--conversation-store-ttl-secs", "LLAMA_ARG_CONVERSATION_STORE_TTL_SECS", g, Kind::value, "S",
               "how long (3600)", seconds(conversations)});
  g = "Observation";
  f.push_back({"--metrics", "LLAMA_ARG_ENDPOINT_METRICS", g, Kind::toggle, "", "serve /metrics",
               onoff([](S& s, bool on) { s.serve.service.metrics = on; })});
  f.push_back(
      {"--metrics-port", "", g, Kind::value, "N",
       "serve /metrics, and nothing else, on this port of the same host too",
       integer(0, 65535, [](S& s, long long n) { s.serve.transport.metrics_port = static_cast<int>(n); })});
  f.push_back({"--slot-save-path", "LLAMA_ARG_SLOT_SAVE_PATH", g, Kind::value, "DIR",
               "POST /slots/{id} saves and restores slots as files of this folder",
               text([](S& s, const auto& v) { s.serve.service.slot_save_path = v; })});
  f.push_back({"--props", "LLAMA_ARG_ENDPOINT_PROPS", g, Kind::toggle, "", "answer POST /props",
               onoff([](S& s, bool on) { s.serve.service.props = on; })});
  f.push_back({"--settings", "MLXCEL_ENABLE_SETTINGS_ENDPOINT", g, Kind::toggle, "",
               "serve /v1/settings: defaults of requests can be read and changed",
               onoff([](S& s, bool on) { s.serve.service.settings = on; })});
  f.push_back({"--slots,!--no-slots", "LLAMA_ARG_ENDPOINT_SLOTS", g, Kind::toggle, "",
               "serve /slots (default: on)", onoff([](S& s, bool on) { s.serve.service.slots = on; })});
  f.push_back({"--otlp-endpoint", "MLXCEL_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT", g, Kind::value, "URL",
               "send a span of every request to this OpenTelemetry collector (OTLP/HTTP)",
               text([](S& s, const auto& v) { s.serve.service.otlp_endpoint = v; })});
  f.push_back({"--log-disable", "", g, Kind::toggle, "", "no log",
               onoff([](S& s, bool on) { s.serve.log_disable = on; })});
  f.push_back({"--log-file", "LLAMA_ARG_LOG_FILE,LLAMA_LOG_FILE", g, Kind::value, "FILE",
               "log there instead of to stdout", text([](S& s, const auto& v) { s.serve.log_file = v; })});
  f.push_back({"--log-colors", "LLAMA_ARG_LOG_COLORS", g, Kind::value, "on|off|auto",
               "colours of the level; auto (default): where the log goes to a terminal",
               word({"on", "off", "auto", "true", "false", "1", "0"}, [](S& s, const auto& v) {
                 s.serve.log_colors =
                     v == "auto" ? std::nullopt : std::optional(v == "on" || v == "true" || v == "1");
               })});
  f.push_back({"--log-prefix,!--no-log-prefix", "LLAMA_ARG_LOG_PREFIX", g, Kind::toggle, "",
               "level and target in front of a line (default: on)",
               onoff([](S& s, bool on) { s.serve.log_style.prefix = on; })});
  f.push_back({"--log-timestamps,!--no-log-timestamps", "LLAMA_ARG_LOG_TIMESTAMPS", g, Kind::toggle, "",
               "the time in front of a line (default: on)",
               onoff([](S& s, bool on) { s.serve.log_style.timestamps = on; })});
  f.push_back({"--log-jsonl,!--no-log-jsonl", "LLAMA_ARG_LOG_JSONL", g, Kind::toggle, "",
               "log one JSON object a line instead of text",
               onoff([](S& s, bool on) { s.serve.log_json = on; })});
  f.push_back({"-lv,--verbosity,--log-verbosity", "", g, Kind::value, "N",
               "0-1 error, 2 warn, 3 info (default), 4 debug, 5 trace [LLAMA_ARG_LOG_VERBOSITY]",
               integer(0, 100, [](S& s, long long n) { s.serve.verbosity = static_cast<int>(n); })});
  f.push_back({"-v,--verbose,--log-verbose", "", g, Kind::toggle, "", "everything",
               onoff([](S& s, bool on) { s.serve.verbose = on; })});
  f.push_back({"--completion-bash", "", g, Kind::toggle, "", "print a completion script and exit",
               onoff([](S& s, bool on) { s.completion = on; })});
  f.push_back({"--help-markdown", "", "", Kind::toggle, "", "print the flags as tables and exit",
               onoff([](S& s, bool on) { s.markdown = on; })});
  f.push_back({"-h,--help,--usage", "", g, Kind::toggle, "", "print this help and exit",
               onoff([](S& s, bool on) { s.help = on; })});
  f.push_back({"--version", "", g, Kind::toggle, "", "print the version and exit",
               onoff([](S& s, bool on) { s.version = on; })});
}

}  // namespace mlxcel::app
