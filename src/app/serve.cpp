#include "app/serve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <mlx/version.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "app/estimate.h"
#include "app/notify.h"
#include "app/serve_options.h"
#include "base/log.h"
#include "server/server.h"

namespace mlxcel::app {
namespace {

/// The log's file: mode 0600, never a symlink or a folder; opened while arguments are checked.
FILE* open_log(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat info{};
  if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (fd >= 0) ::close(fd);
    throw UsageError(fmt::format("--log-file {}: not a file that can be written", path));
  }
  return ::fdopen(fd, "a");
}

log::Level level_of(const ServeFlags& flags) {
  if (flags.verbose) return log::Level::trace;
  if (flags.verbosity) return log::parse_level(std::to_string(*flags.verbosity));
  if (const char* text = std::getenv("LLAMA_ARG_LOG_VERBOSITY"); text && *text) {
    try {
      return log::parse_level(text);
    } catch (const Error& error) {
      throw UsageError(fmt::format("LLAMA_ARG_LOG_VERBOSITY: {}", error.what()));
    }
  }
  return log::Level::info;
}

void set_up_log(const ServeFlags& flags) {
  const std::string& path = flags.log_file;
  FILE* out = !flags.log_disable && !path.empty() ? open_log(path) : stdout;
  log::set_sink([out](log::Level, std::string_view line) {
    fmt::print(out, "{}\n", line);
    std::fflush(out);
  });
  const log::Level level = level_of(flags);
  if (flags.log_disable) {
    log::configure("off", log::Level::off);
  } else if (flags.verbose || flags.verbosity) {
    log::configure("", level);
  } else {
    log::configure_from_environment(level);
  }
  for (const auto& key : flags.service.access.keys) {
    if (key.size() >= 6) log::hide(key);
  }
}

/// The first lines: always on stdout, since launchers read them there.
class Banner {
 public:
  explicit Banner(const ServeFlags& flags) : to_log_(!flags.log_file.empty()) {}
  void line(const std::string& text) const {
    fmt::print("{}\n", text);
    std::fflush(stdout);
    if (to_log_) log::info("server", "{}", text);
  }

 private:
  bool to_log_;
};

void warn_open(const ServeFlags& flags, const Banner& banner) {
  const auto& host = flags.transport.host;
  const bool local = host == "127.0.0.1" || host == "localhost" || host == "::1" || host.ends_with(".sock");
  if (!local && flags.service.access.keys.empty()) {
    banner.line(fmt::format("warning: {} can be reached from other machines and no --api-key is set", host));
  }
}

EngineOptions server_engine_options(const ServeFlags& flags) {
  EngineOptions options = engine_options(flags.model);
  options.parallel = flags.parallel;
  options.max_queue = static_cast<size_t>(flags.max_queue);
  options.max_token_gap_ms = flags.max_token_gap;
  options.step_token_budget = flags.step_token_budget == "auto" ? 0 : std::stoi(flags.step_token_budget);
  options.pooling = flags.pooling;
  options.max_per_key = static_cast<size_t>(flags.max_per_key);
  options.prompt_cache = flags.prompt_cache;
  options.prompt_cache_bytes = flags.prompt_cache_bytes;
  if (options.prompt_cache_bytes == 0 && flags.prompt_cache_mib > 0)
    options.prompt_cache_bytes = static_cast<size_t>(flags.prompt_cache_mib) << 20;
  options.prompt_lookup = flags.prompt_lookup;
  options.draft_tokens = flags.draft_tokens;
  return options;
}

}  // namespace

int serve_command(int argc, char** argv, const char* program) {
  ServeFlags flags = parse_serve_flags(argc, argv, program);
  set_up_log(flags);
  EngineOptions options = server_engine_options(flags);
  options.model = resolve(flags.model);
  if (flags.model.estimate) preflight(flags.model, options.model, flags.parallel);
  if (flags.service.aliases.empty()) flags.service.model_id = options.model.filename().string();
  if (flags.service.model_id.empty())
    flags.service.model_id = options.model.parent_path().filename().string();
  flags.service.mlx_version = mlx::core::version();
  flags.service.model_path = options.model.string();
  flags.service.device = device_label();

  const Banner banner(flags);
  banner.line(version_line());
  banner.line(fmt::format("device: {}", device_label()));
  warn_open(flags, banner);
  for (const auto& note : flags.notes) banner.line(note);
  if (flags.decode_guard) banner.line("warning: --decode-timeout 0: the guard of 300 seconds stays");

  // The server is declared before the engine can exist and ends after it: the engine's events run on its
  // threads.
  Service service(flags.service);
  Router router(service);
  add_all_routes(router);
  Server server(router, flags.transport);
  server.on_signal([&service] {
    // Nothing can be running before the model is there, and loading cannot be interrupted.
    if (service.state() == Service::State::loading) std::_Exit(0);
  });
  server.watch_failure([&service] {
    const auto engine = service.engine();
    return engine && engine->failure().has_value();
  });
  server.start();
  notify_supervisor("STATUS=loading the model");
  log::info("server", "listening on {}, loading {}", server.address(), options.model.string());

  const std::shared_ptr<Engine> engine = load_engine(flags.model, options);
  const ModelInfo& info = engine->info();
  for (const auto& warning : engine->warnings()) banner.line(fmt::format("warning: {}", warning));
  banner.line(fmt::format("model: {} ({}, {}, {:.1f}M parameters)", flags.service.model_id, info.model_type,
                          info.weights_label, static_cast<double>(info.parameters) / 1e6));
  if (info.encoder) {
    banner.line(fmt::format("embeddings: {} dimensions, up to {} tokens", info.hidden, engine->max_input()));
  } else {
    banner.line(fmt::format("KV cache: {}", engine->kv_label()));
    banner.line(fmt::format("slots: {}, window {} tokens each", flags.parallel, engine->context()));
    if (!engine->chat_template() && flags.service.chat_template.empty()) {
      banner.line("chat template: none; /v1/chat/completions will refuse, /v1/completions serves");
    }
  }
  service.ready(engine);
  banner.line(fmt::format("ready on {}", server.address()));
  notify_supervisor("READY=1");

  const bool well = server.wait();
  notify_supervisor("STOPPING=1");
  if (!well) {
    fmt::print(stderr, "{}: the engine has stopped: {}\n", program,
               engine->failure().value_or("unknown reason"));
  }
  service.release();
  return well ? 0 : 1;
}

}  // namespace mlxcel::app
