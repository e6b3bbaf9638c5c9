#include "app/serve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "api/json_node.h"
#include "api/openai/answer.h"
#include "api/openai/sampling_fields.h"
#include "app/flags/flag.h"
#include "app/sampling.h"
#include "app/serve_checks.h"
#include "base/memory.h"
#include "server/router.h"

namespace mlxcel::app {
namespace {

void finish_identity(ServeFlags& flags, const FlagState& raw) {
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

/// Side models without a first one are the ones that are served; one that is named twice is one. True where
/// the first is the one that embeds.
bool settle_sides(ServeFlags& flags) {
  auto& side = flags.side;
  auto& first = flags.model.model;
  const bool router = !flags.router.folder.empty() || !flags.router.preset.empty();
  if (router && !(side.embedder.empty() && side.reranker.empty()))
    throw UsageError("--embedding-model and --reranker-model: a router loads such models by their names");
  if (first.empty() && !side.embedder.empty()) first = side.embedder;
  if (first.empty() && !side.reranker.empty()) first = side.reranker;
  if (first.empty()) return false;
  const bool embeds = side.embedder == first;
  if (embeds) side.embedder.clear();
  if (side.reranker == first) {
    flags.service.reranking_only = true;
    side.reranker.clear();
  }
  return embeds;
}

void check(ServeFlags& flags, const FlagState& raw) {
  if (!raw.hf_repo.empty()) flags.model.model = raw.hf_repo;
  const bool embeds = flags.side.first_embeds = settle_sides(flags);
  flags.several = flags.model.model.empty();
  if (!flags.several && (!flags.router.folder.empty() || !flags.router.preset.empty()))
    throw UsageError("--models-dir and --models-preset: they are for a server without -m");
  if (!flags.several) checked_reference(flags.model);
  const int rows = flags.engine.max_batch;
  if (flags.parallel == -1) flags.parallel = std::max(4, rows);
  if (flags.one_at_a_time) flags.parallel = 1;
  if (flags.parallel == 0) throw UsageError("--parallel 0: expected at least 1");
  if (rows > flags.parallel)
    throw UsageError(fmt::format("--max-batch-size {}: more rows than the {} sequences there are at once{}",
                                 rows, flags.parallel,
                                 flags.one_at_a_time ? " (--no-batch)" : " (--parallel)"));
  if (flags.model.context < 0)
    throw UsageError(fmt::format("--ctx-size {}: expected 0 or more", flags.model.context));
  if (flags.model.context > 0) {
    // The flag is a total; a slot gets its share.
    const int shares = rows > 0 ? rows : flags.parallel;
    const int share = flags.model.context / shares;
    if (share < 512) {
      throw UsageError(
          fmt::format("--ctx-size {}: {} tokens for each of {} slots, expected at least 512 each",
                      flags.model.context, share, shares));
    }
    flags.model.context = share;
  }
  if (embeds && flags.side.max_length > 0) flags.model.context = flags.side.max_length;
  check_access(flags, raw);
  check_template(flags.service, raw);
  for (const auto& text : raw.reverse_prompts) {
    if (text.empty()) throw UsageError("--reverse-prompt: the empty string");
  }
  if (flags.step_token_budget != "auto") {
    const auto& text = flags.step_token_budget;
    const bool number =
        !text.empty() && text.size() < 8 &&
        std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!number || std::stoi(text) < 1) {
      throw UsageError(fmt::format("--step-token-budget {}: expected auto or a number of tokens", text));
    }
  }
}

/// Every route once, with its methods.
std::string routes_markdown() {
  Service service{ServiceOptions()};
  Router router(service);
  add_all_routes(router);
  std::vector<std::pair<std::string, std::string>> paths;  // path, methods
  for (const auto& [method, path] : router.table()) {
    const auto known =
        std::find_if(paths.begin(), paths.end(), [&p = path](const auto& entry) { return entry.first == p; });
    if (known == paths.end())
      paths.emplace_back(path, method);
    else
      known->second += ", " + method;
  }
  std::sort(paths.begin(), paths.end());
  std::string out = "## Routes\n\n| Path | Methods |\n| --- | --- |\n";
  for (const auto& [path, methods] : paths) out += fmt::format("| `{}` | {} |\n", path, methods);
  return out;
}

/// Options that print something and end the program.
bool answered_at_once(const FlagState& state, const std::string& program) {
  if (state.help) fmt::print("{}", flags_help(server_flags(), program));
  if (state.version) fmt::print("{}\n", version_line());
  if (state.markdown) fmt::print("{}\n## Flags\n{}", routes_markdown(), flags_markdown(server_flags()));
  if (state.completion) fmt::print("{}", flags_completion(server_flags(), program));
  if (state.cache_list) {
    const auto& root = state.serve.model.models_dir;
    const auto models = list_models(root.empty() ? store_root() : std::filesystem::path(root), true);
    fmt::print("number of models in cache: {}\n", models.size());
    for (size_t i = 0; i < models.size(); ++i) fmt::print("{:4}. {}\n", i + 1, models[i].reference);
  }
  return state.help || state.version || state.markdown || state.completion || state.cache_list;
}

}  // namespace

void merge_variables(ServeFlags& flags) {
  if (flags.template_variables.empty()) return;
  std::map<std::string, std::string> variables(flags.template_variables.begin(),
                                               flags.template_variables.end());
  JsonWriter out;
  out.begin_object();
  for (const auto& [name, json] : variables) out.key(name).raw(json);
  out.end_object();
  flags.service.chat_template_kwargs = openai::merge_objects(out.take(), flags.service.chat_template_kwargs);
}

namespace {

/// Vertex AI tells a container its port and routes in the environment.
void read_vertex(ServeFlags& flags) {
  auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  if (variable("AIP_MODE") != "PREDICTION") return;
  auto route = [&](const char* name, const char* usual) {
    std::string path = variable(name);
    if (path.empty()) path = usual;
    const bool plain =
        path.empty() || (path.starts_with('/') && path.find_first_of(" ?#%{}") == std::string::npos);
    if (!plain) throw UsageError(fmt::format("{} {}: expected a plain path such as /predict", name, path));
    return path;
  };
  flags.service.vertex = {route("AIP_PREDICT_ROUTE", "/predict"), route("AIP_HEALTH_ROUTE", "")};
  if (flags.service.vertex.health == "/health") flags.service.vertex.health.clear();  // it is there
  const std::string port = variable("AIP_HTTP_PORT").empty() ? "8080" : variable("AIP_HTTP_PORT");
  const bool number = port.size() < 6 && port.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoi(port) > 65535)
    throw UsageError(fmt::format("AIP_HTTP_PORT {}: expected a port", port));
  flags.transport.port = std::stoi(port);
}

/// What was read, checked and put where it belongs.
ServeFlags settled(FlagState& raw) {
  ServeFlags& flags = raw.serve;
  check(flags, raw);
  read_language_bias(raw);
  settle_engine_flags(raw);
  merge_variables(flags);
  finish_identity(flags, raw);
  flags.service.access.check_host = !flags.transport.host.ends_with(".sock") &&
                                    only_local(flags.transport.host) && flags.service.access.keys.empty();
  flags.notes = raw.notes;
  auto& service = flags.service;
  const auto& host = flags.transport.host;
  if (service.settings && service.access.keys.empty() && !only_local(host))
    throw UsageError(fmt::format("--settings: {} can be reached from other machines; set --api-key", host));
  if (const auto& folder = service.slot_save_path; !folder.empty()) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error))
      throw UsageError(fmt::format("--slot-save-path {}: not a folder", folder));
  }
  const char* debug = std::getenv("LLAMA_SERVER_SLOTS_DEBUG");
  service.slots_debug = debug && *debug && std::string_view(debug) != "0";
  if (const char* most = std::getenv("MLXCEL_REASONING_ECHO_MAX_BYTES"); most && *most) {
    const auto bytes = parse_bytes(most);
    if (!bytes)
      throw UsageError(fmt::format("MLXCEL_REASONING_ECHO_MAX_BYTES {}: expected bytes such as 16M", most));
    service.reasoning_echo_bytes = *bytes;
  }
  if (flags.transport.metrics_port >= 0 && flags.transport.host.find(".sock") != std::string::npos)
    throw UsageError("--metrics-port: --host is a Unix socket, which has no second port");
  if (flags.transport.metrics_port > 0 && flags.transport.metrics_port == flags.transport.port)
    throw UsageError(fmt::format("--metrics-port {}: the server's own port", flags.transport.port));
  service.reverse_prompts = raw.reverse_prompts;
  if (raw.escapes) {
    for (auto& stop : service.reverse_prompts) stop = unescaped(stop);
    service.reasoning_budget_message = unescaped(service.reasoning_budget_message);
  }
  service.store_root = flags.model.models_dir;
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
  service.parallel = flags.parallel;
  service.prompt_cache = flags.prompt_cache;
  service.prefill_chunk = flags.model.prefill_chunk;
  service.step_token_budget = flags.step_token_budget == "auto" ? 0 : std::stoi(flags.step_token_budget);
  service.max_per_key = static_cast<size_t>(flags.max_per_key);
  service.language_bias = flags.engine.language_bias;
  try {
    check_sampling(sampling_params(raw, Config::parse("{}", "flags")), std::numeric_limits<int>::max());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const int chunk = flags.model.prefill_chunk > 0 ? std::min(flags.model.prefill_chunk, 512) : 512;
  flags.engine.max_prefill_tokens =
      flags.max_prefill_tokens.value_or(2 * flags.engine.max_prefill_rows * chunk);
  if (flags.max_per_key > 0 && service.access.keys.empty())
    throw UsageError("--max-concurrent-per-key: there are no API keys");
  return std::move(flags);
}

}  // namespace

bool only_local(const std::string& hosts) {
  const auto all = split_commas(hosts);
  return std::all_of(all.begin(), all.end(), [](const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.") || host.ends_with(".sock");
  });
}

ServeFlags parse_serve_flags(int argc, char** argv, const std::string& program) {
  FlagState raw;
  const std::vector<std::string> words(argv + 1, argv + argc);
  read_flags(server_flags(), words, raw);
  if (answered_at_once(raw, program)) throw CLI::CallForHelp();
  ServeFlags out = settled(raw);
  read_vertex(out);
  out.words = words;
  return out;
}

ServeFlags model_serve_flags(const std::vector<std::string>& words, const std::vector<std::string>& preset,
                             const std::string& model, const std::string& id) {
  FlagState raw;
  std::vector<std::string> all = preset;  // later ones win
  all.insert(all.end(), words.begin(), words.end());
  read_flags(server_flags(), all, raw);
  raw.serve.router = {};
  raw.serve.model.model = model;
  raw.hf_repo.clear();
  ServeFlags out = settled(raw);
  out.service.model_id = id;
  return out;
}

}  // namespace mlxcel::app
