#include "app/serve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "api/json_node.h"
#include "api/openai/sampling_fields.h"
#include "server/access.h"

namespace mlxcel::app {
namespace {

struct Raw {  // what is checked or converted after parsing
  std::vector<std::string> api_keys, api_key_files, reverse_prompts;
  std::string alias, tags, allowed_origins, chat_template_file, hf_repo;
  std::optional<float> temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k, repeat_last_n;
  std::optional<long long> seed;
  double timeout = 3600, decode_timeout = 600;
  bool no_cors_credentials = false, no_prefill_assistant = false;
};

/// llama.cpp's multi-letter spellings with one dash, before parsing; never in a value or after "--".
std::vector<std::string> rewrite(const CLI::App& app, int argc, char** argv) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kSpellings = {{
      {"-np", "--parallel"}, {"-to", "--timeout"}, {"-hf", "--hf-repo"}, {"-hfr", "--hf-repo"},
      {"-hff", "--hf-file"}, {"-lv", "--verbosity"}, {"-sp", "--special"}, {"-ub", "--ubatch-size"},
      {"-hft", "--hf-token"}, {"-ctk", "--cache-type-k"},
  }};
  std::vector<std::string> out;
  bool value_next = false;
  bool verbatim = false;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (!value_next && !verbatim) {
      if (word == "--") verbatim = true;
      for (const auto& [from, to] : kSpellings) {
        if (word == from) word = to;
      }
      const bool flag = word.size() > 1 && word[0] == '-' && word.find('=') == std::string::npos;
      const auto* option = flag ? app.get_option_no_throw(word) : nullptr;
      value_next = option && option->get_expected_min() > 0;
    } else {
      value_next = false;
    }
    out.push_back(std::move(word));
  }
  return out;
}

/// A value-less option fires from the environment only for these words.
bool environment_on(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return false;
  const std::string_view word = value;
  return word == "on" || word == "enabled" || word == "true" || word == "1";
}

void add_model_flags(CLI::App& app, ServeFlags& flags, Raw& raw) {
  const char* group = "Model";
  app.add_option("-m,--model", flags.model.model, "a folder, a .gguf file, owner/name, owner/name:QUANT, or a name in the store")
      ->type_name("REF")->group(group)->envname("LLAMA_ARG_MODEL");
  app.add_option("--hf-repo", raw.hf_repo, "owner/name[:QUANT]; wins over -m (also -hf)")
      ->type_name("REPO")->group(group)->envname("LLAMA_ARG_HF_REPO");
  app.add_option("--hf-file", flags.model.hf_file, "one file of the repository exactly (also -hff)")
      ->type_name("FILE")->group(group)->envname("LLAMA_ARG_HF_FILE");
  app.add_option("--revision", flags.model.revision, "branch, tag or revision id in the Hugging Face cache")
      ->type_name("REV")->group(group);
  app.add_option("--model-store-root", flags.model.models_dir, "model store (default: MLXCEL_MODELS_DIR, else <cache root>/models)")
      ->type_name("PATH")->group(group);
  app.add_option("-a,--alias", raw.alias, "names that requests may use, comma-separated; the first in order is the id")
      ->type_name("A,B")->group(group)->envname("LLAMA_ARG_ALIAS");
  app.add_option("--tags", raw.tags, "informational, in /v1/models")->type_name("T,..")->group(group)->envname("LLAMA_ARG_TAGS");
  app.add_flag("--no-warmup,!--warmup", flags.model.no_warmup, "leave out the pass before the first request")->group(group);
}

void add_transport_flags(CLI::App& app, ServeFlags& flags, Raw& raw) {
  const char* group = "Network";
  auto& t = flags.transport;
  app.add_option("--host", t.host, "address to listen on; a path ending in .sock is a Unix socket")
      ->type_name("ADDR")->capture_default_str()->group(group)->envname("LLAMA_ARG_HOST");
  app.add_option("--port", t.port, "0: a free one, printed when ready")
      ->type_name("N")->capture_default_str()->check(CLI::Range(0, 65535))->group(group)->envname("LLAMA_ARG_PORT");
  app.add_flag("--reuse-port", t.reuse_port, "let several servers share the port")->group(group);
  app.add_option("--timeout", raw.timeout, "seconds a read or write may take (also -to)")
      ->type_name("S")->capture_default_str()->check(CLI::Range(1.0, 1e6))->group(group)->envname("LLAMA_ARG_TIMEOUT");
  app.add_option("--decode-timeout", raw.decode_timeout, "seconds without a token that end a request; 0: 300, with a warning")
      ->type_name("S")->capture_default_str()->check(CLI::Range(0.0, 1e6))->group(group)->envname("MLXCEL_DECODE_TIMEOUT");
  app.add_option("--threads-http", t.threads, "threads for clients; -1: automatic")
      ->type_name("N")->capture_default_str()->check(CLI::Range(-1, 256))->group(group)->envname("LLAMA_ARG_THREADS_HTTP");
  app.add_option("--sse-ping-interval", flags.service.ping_seconds, "seconds of silence before a comment in a stream; -1: off")
      ->type_name("S")->capture_default_str()->check(CLI::Range(-1, 86400))->group(group)->envname("LLAMA_ARG_SSE_PING_INTERVAL");
  app.add_option("--api-prefix", flags.service.api_prefix, "put every route under this path")
      ->type_name("P")->group(group)->envname("LLAMA_ARG_API_PREFIX");
  app.add_option("--ssl-cert-file", t.tls_cert_file, "certificate chain (PEM); with --ssl-key-file: HTTPS")
      ->type_name("FILE")->group(group)->envname("LLAMA_ARG_SSL_CERT_FILE");
  app.add_option("--ssl-key-file", t.tls_key_file, "private key (PEM)")
      ->type_name("FILE")->group(group)->envname("LLAMA_ARG_SSL_KEY_FILE");
  group = "Access";
  auto& access = flags.service.access;
  app.add_option("--api-key", raw.api_keys, "key that requests must show; repeatable, comma lists; LLAMA_API_KEY adds")
      ->type_name("K")->group(group)->take_all();
  app.add_option("--api-key-file", raw.api_key_files, "keys, one a line; LLAMA_ARG_API_KEY_FILE adds")
      ->type_name("FILE")->group(group)->take_all();
  app.add_option("--cors-origins", access.cors_origins, "* echoes the origin; localhost; or text sent as it is")
      ->type_name("O")->capture_default_str()->group(group)->envname("LLAMA_ARG_CORS_ORIGINS");
  app.add_option("--cors-methods", access.cors_methods, "methods in the answer to a preflight")
      ->type_name("M")->capture_default_str()->group(group)->envname("LLAMA_ARG_CORS_METHODS");
  app.add_option("--cors-headers", access.cors_headers, "headers in the answer to a preflight")
      ->type_name("H")->capture_default_str()->group(group)->envname("LLAMA_ARG_CORS_HEADERS");
  app.add_flag("--no-cors-credentials,!--cors-credentials", raw.no_cors_credentials, "do not allow credentials across origins")->group(group);
  app.add_option("--allowed-origins", raw.allowed_origins, "scheme://host[:port], comma-separated; others are refused")
      ->type_name("LIST")->group(group)->envname("MLXCEL_ALLOWED_ORIGINS");
}

void add_run_flags(CLI::App& app, ServeFlags& flags) {
  const char* group = "Run time";
  app.add_option("-c,--ctx-size", flags.model.context, "tokens of all slots together; 0: the model's window per slot")
      ->type_name("N")->capture_default_str()->group(group)->envname("LLAMA_ARG_CTX_SIZE");
  app.add_option("--parallel,--n-parallel", flags.parallel, "sequences at once; -1: 4 (also -np)")
      ->type_name("N")->capture_default_str()->check(CLI::Range(-1, 1024))->group(group)->envname("LLAMA_ARG_N_PARALLEL");
  app.add_option("--max-queue-depth", flags.max_queue, "requests that may wait for a slot")
      ->type_name("N")->capture_default_str()->check(CLI::Range(1, 65536))->group(group);
  app.add_option("-b,--batch-size,--prefill-chunk-size", flags.model.prefill_chunk, "prompt tokens of a request in one step; 0: whole prompts")
      ->type_name("N")->capture_default_str()->group(group)->envname("MLXCEL_PREFILL_CHUNK");
  app.add_option("--step-token-budget,--ubatch-size", flags.step_token_budget, "tokens of a step while answers run; auto: learned (also -ub)")
      ->type_name("N")->capture_default_str()->group(group)->envname("MLXCEL_STEP_TOKEN_BUDGET");
  app.add_option("--max-token-gap", flags.max_token_gap, "milliseconds between tokens that auto aims at")
      ->type_name("MS")->capture_default_str()->check(CLI::Range(1, 60000))->group(group)->envname("MLXCEL_MAX_TOKEN_GAP");
  app.add_option("-n,--predict,--n-predict", flags.service.predict, "default cap on an answer; -1: the window")
      ->type_name("N")->capture_default_str()->check(CLI::Range(-1, 1 << 30))->group(group)->envname("LLAMA_ARG_N_PREDICT");
  app.add_option("--kv-cache-mode", flags.model.kv_cache_mode, "how keys and values are kept: fp16, or f32 for tests")
      ->type_name("MODE")->capture_default_str()->group(group);
  app.add_option("-t,--threads", flags.model.threads, "threads of the model; 0: the cores this process may use")
      ->type_name("N")->group(group)->envname("LLAMA_ARG_THREADS");
  app.add_option("--cpu-precision", flags.model.cpu_precision, "high (default), fast or exact")
      ->type_name("P")->group(group)->envname("MLXCEL_CPU_PRECISION");
  app.add_option("--pooling", flags.pooling, "embedding models: mean, cls or last (default: the checkpoint's)")
      ->check(CLI::IsMember({"mean", "cls", "last"}))->group(group)->envname("LLAMA_ARG_POOLING");
}

void add_answer_flags(CLI::App& app, ServeFlags& flags, Raw& raw) {
  const char* group = "Sampling defaults (the checkpoint's where it has them)";
  app.add_option("--temp,--temperature", raw.temperature, "0: greedy (0.8)")->type_name("F")->check(CLI::Range(0.0, 100.0))->group(group);
  app.add_option("--top-k", raw.top_k, "0: off (40)")->type_name("N")->check(CLI::Range(0, 1 << 30))->group(group)->envname("LLAMA_ARG_TOP_K");
  app.add_option("--top-p", raw.top_p, "1: off (0.95)")->type_name("F")->check(CLI::Range(0.0, 1.0))->group(group);
  app.add_option("--min-p", raw.min_p, "0: off (0.05)")->type_name("F")->check(CLI::Range(0.0, 1.0))->group(group);
  app.add_option("--repeat-penalty", raw.repeat_penalty, "1: off (1)")->type_name("F")->check(CLI::Range(0.01, 100.0))->group(group);
  app.add_option("--repeat-last-n", raw.repeat_last_n, "tokens that penalties look at; -1: all (64)")->type_name("N")->check(CLI::Range(-1, 1 << 30))->group(group);
  app.add_option("--frequency-penalty", raw.frequency_penalty, "0: off (0)")->type_name("F")->check(CLI::Range(-2.0, 2.0))->group(group);
  app.add_option("--presence-penalty", raw.presence_penalty, "0: off (0)")->type_name("F")->check(CLI::Range(-2.0, 2.0))->group(group);
  app.add_option("-s,--seed", raw.seed, "-1: random")->type_name("N")->group(group);
  app.add_flag("--ignore-eos", flags.service.sampling.ignore_eos, "go on past the end token")->group(group);
  app.add_option("-r,--reverse-prompt", raw.reverse_prompts, "stop string of every request; repeatable")->type_name("S")->group(group)->take_all();
  group = "Chat";
  app.add_option("--chat-template", flags.service.chat_template, "template text instead of the model's")
      ->type_name("TEXT")->group(group)->envname("LLAMA_ARG_CHAT_TEMPLATE");
  app.add_option("--chat-template-file", raw.chat_template_file, "the same from a file")
      ->type_name("F")->group(group)->envname("LLAMA_ARG_CHAT_TEMPLATE_FILE");
  app.add_option("--chat-template-kwargs", flags.service.chat_template_kwargs, "template variables (JSON object); a request's win")
      ->type_name("JSON")->group(group)->envname("LLAMA_ARG_CHAT_TEMPLATE_KWARGS");
  app.add_flag("--no-prefill-assistant,!--prefill-assistant", raw.no_prefill_assistant, "do not continue a trailing assistant message")->group(group);
  app.add_flag("--special", flags.service.special, "special tokens appear in the text (also -sp)")->group(group);
  group = "Observation";
  app.add_flag("--metrics", flags.service.metrics, "serve /metrics")->group(group);
  app.add_flag("--log-disable", flags.log_disable, "no log")->group(group);
  app.add_option("--log-file", flags.log_file, "log there instead of to stdout")
      ->type_name("F")->group(group)->envname("LLAMA_ARG_LOG_FILE");
  app.add_option("--verbosity,--log-verbosity", flags.verbosity, "0-1 error, 2 warn, 3 info, 4 debug, 5 trace (also -lv; default 3)")
      ->type_name("N")->check(CLI::Range(0, 100))->group(group);
  app.add_flag("-v,--verbose,--log-verbose", flags.verbose, "everything")->group(group);
}

std::string read_text(const std::string& path, const char* flag) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("{} {}: cannot be opened", flag, path));
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (text.size() > (1 << 20)) throw UsageError(fmt::format("{} {}: larger than 1 MiB", flag, path));
  return text;
}

std::vector<std::string> split_commas(const std::string& list) {
  std::vector<std::string> out;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    const auto first = item.find_first_not_of(" \t");
    if (first == std::string::npos) continue;
    out.push_back(item.substr(first, item.find_last_not_of(" \t") - first + 1));
  }
  return out;
}

void collect_keys(ServeFlags& flags, const Raw& raw) {
  auto& keys = flags.service.access.keys;
  auto add = [&](const std::string& list) {
    for (auto& key : split_keys(list)) keys.push_back(std::move(key));
  };
  for (const auto& list : raw.api_keys) add(list);
  for (const char* name : {"LLAMA_API_KEY", "MLXCEL_API_KEY"}) {
    if (const char* value = std::getenv(name)) add(value);
  }
  auto files = raw.api_key_files;
  if (const char* value = std::getenv("LLAMA_ARG_API_KEY_FILE"); value && *value) files.emplace_back(value);
  for (const auto& file : files) {
    std::stringstream lines(read_text(file, "--api-key-file"));
    for (std::string line; std::getline(lines, line);) {
      line = line.substr(0, line.find('#'));
      while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.pop_back();
      if (!line.empty()) keys.push_back(line);
    }
  }
  if (keys.empty() && (!raw.api_keys.empty() || !files.empty())) {
    throw UsageError("--api-key, --api-key-file: no key in them");
  }
}

void finish_identity(ServeFlags& flags, const Raw& raw) {
  std::set<std::string> names;
  for (auto& name : split_commas(raw.alias)) names.insert(std::move(name));
  auto& service = flags.service;
  service.aliases.assign(names.begin(), names.end());
  if (!names.empty()) {
    service.model_id = *names.begin();
  } else {
    std::filesystem::path path = flags.model.model;
    if (!path.has_filename()) path = path.parent_path();
    service.model_id = path.filename().string();
  }
  service.tags = split_commas(raw.tags);
}

void check(ServeFlags& flags, const Raw& raw) {
  auto& service = flags.service;
  auto& transport = flags.transport;
  if (!raw.hf_repo.empty()) flags.model.model = raw.hf_repo;
  if (flags.model.model.empty()) throw UsageError("-m, --model is required: a folder, a .gguf file, or owner/name");
  checked_reference(flags.model);
  if (flags.parallel == -1) flags.parallel = 4;
  if (flags.parallel == 0) throw UsageError("--parallel 0: expected at least 1");
  if (flags.model.context < 0) throw UsageError(fmt::format("--ctx-size {}: expected 0 or more", flags.model.context));
  if (flags.model.context > 0) {
    // The flag is a total; a slot gets its share.
    const int share = flags.model.context / flags.parallel;
    if (share < 512) {
      throw UsageError(fmt::format("--ctx-size {}: {} tokens for each of {} slots, expected at least 512 each",
                                   flags.model.context, share, flags.parallel));
    }
    flags.model.context = share;
  }
  if (transport.tls_cert_file.empty() != transport.tls_key_file.empty()) {
    throw UsageError("--ssl-cert-file and --ssl-key-file: give both or neither");
  }
  if (!service.api_prefix.empty()) {
    while (service.api_prefix.ends_with('/')) service.api_prefix.pop_back();
    const bool plain = service.api_prefix.empty() || (service.api_prefix.starts_with('/') &&
                       service.api_prefix.find_first_of(" ?#%{}") == std::string::npos);
    if (!plain) throw UsageError(fmt::format("--api-prefix {}: expected a plain path such as /llm", service.api_prefix));
  }
  auto& access = service.access;
  access.cors_credentials = !raw.no_cors_credentials;
  if (const char* word = std::getenv("LLAMA_ARG_CORS_CREDENTIALS")) {
    const std::string_view text = word;
    if (text == "off" || text == "disabled" || text == "false" || text == "0") access.cors_credentials = false;
  }
  access.allowed_origins = split_commas(raw.allowed_origins);
  for (const auto& origin : access.allowed_origins) {
    if (!is_origin(origin)) {
      throw UsageError(fmt::format("--allowed-origins {}: expected scheme://host[:port]", origin));
    }
  }
  if (!access.allowed_origins.empty() && access.cors_origins != "*") {
    throw UsageError("--allowed-origins and --cors-origins: give one of them");
  }
  for (const auto* text : {&access.cors_origins, &access.cors_methods, &access.cors_headers}) {
    if (text->find_first_of("\r\n") != std::string::npos) throw UsageError("--cors-*: a line break in the value");
  }
  if (service.chat_template.empty() && !raw.chat_template_file.empty()) {
    service.chat_template = read_text(raw.chat_template_file, "--chat-template-file");
  }
  if (!service.chat_template_kwargs.empty()) {
    try {
      JsonNode::parse(service.chat_template_kwargs).members();
    } catch (const Error& error) {
      throw UsageError(fmt::format("--chat-template-kwargs: expected a JSON object: {}", error.what()));
    }
  }
  for (const auto& text : raw.reverse_prompts) {
    if (text.empty()) throw UsageError("--reverse-prompt: the empty string");
  }
  if (flags.step_token_budget != "auto") {
    const auto& text = flags.step_token_budget;
    const bool number = !text.empty() && text.size() < 8 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!number || std::stoi(text) < 1) {
      throw UsageError(fmt::format("--step-token-budget {}: expected auto or a number of tokens", text));
    }
  }
}

}  // namespace

ServeFlags parse_serve_flags(int argc, char** argv, const std::string& program) {
  ServeFlags flags;
  Raw raw;
  CLI::App app("Serve a model over HTTP (OpenAI-compatible).", program);
  configure(app, fmt::format("  {0} -m SmolLM2-135M-Instruct.gguf\n"
                             "  {0} -m ./all-MiniLM-L6-v2 --port 8081\n"
                             "  {0} -m owner/name --api-key secret --host 0.0.0.0 --ssl-cert-file cert.pem --ssl-key-file key.pem\n"
                             "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
                             "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], \"stream\": true}}'\n",
                             program));
  add_model_flags(app, flags, raw);
  add_transport_flags(app, flags, raw);
  add_run_flags(app, flags);
  add_answer_flags(app, flags, raw);
  auto words = rewrite(app, argc, argv);
  std::vector<char*> pointers{argv[0]};
  for (auto& word : words) pointers.push_back(word.data());
  parse(app, static_cast<int>(pointers.size()), pointers.data());

  if (environment_on("LLAMA_ARG_REUSE_PORT")) flags.transport.reuse_port = true;
  if (environment_on("LLAMA_ARG_ENDPOINT_METRICS")) flags.service.metrics = true;
  check(flags, raw);
  collect_keys(flags, raw);
  finish_identity(flags, raw);
  auto& service = flags.service;
  service.prefill_assistant = !raw.no_prefill_assistant;
  service.reverse_prompts = raw.reverse_prompts;
  service.sampling.temperature = raw.temperature;
  service.sampling.top_p = raw.top_p;
  service.sampling.min_p = raw.min_p;
  service.sampling.repeat_penalty = raw.repeat_penalty;
  service.sampling.frequency_penalty = raw.frequency_penalty;
  service.sampling.presence_penalty = raw.presence_penalty;
  service.sampling.top_k = raw.top_k;
  service.sampling.repeat_last_n = raw.repeat_last_n;
  if (raw.seed) service.sampling.seed = openai::fold_seed(*raw.seed);
  auto& limits = flags.transport.limits;
  limits.io_seconds = raw.timeout;
  limits.header_seconds = std::min(limits.header_seconds, raw.timeout);
  limits.idle_seconds = std::min(limits.idle_seconds, raw.timeout);
  limits.body_seconds = std::min(limits.body_seconds, raw.timeout);
  limits.decode_seconds = raw.decode_timeout > 0 ? raw.decode_timeout : 300;
  flags.decode_guard = raw.decode_timeout == 0;
  service.limits = limits;
  service.max_rows = flags.parallel + flags.max_queue;
  return flags;
}

}  // namespace mlxcel::app
