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
#include <utility>

#include "app/environment.h"
#include "app/estimate.h"
#include "app/log_json.h"
#include "app/notify.h"
#include "app/sampling.h"
#include "app/say.h"
#include "app/serve_models.h"
#include "app/serve_options.h"
#include "base/log.h"
#include "hub/http.h"
#include "server/answer_form.h"
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
  LogStyle style = flags.log_style;
  style.colors = flags.log_colors.value_or(::isatty(::fileno(out)) != 0 && !std::getenv("NO_COLOR"));
  log::set_sink([out, style, json = flags.log_json](log::Level level, std::string_view line) {
    offer(out,
          (json ? json_log_line(log::to_string(level), line) : text_log_line(level, line, style)) + "\n");
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
    offer(stdout, text + "\n");
    if (to_log_) log::info("server", "{}", text);
  }

 private:
  bool to_log_;
};

void warn_open(const ServeFlags& flags, const Banner& banner) {
  const auto& host = flags.transport.host;
  if (!only_local(host) && flags.service.access.keys.empty()) {
    banner.line(fmt::format("warning: {} can be reached from other machines and no --api-key is set", host));
  }
}

/// Lines about a model that has been loaded.
void introduce(const Banner& banner, const ServeFlags& flags, const Engine& engine) {
  const ModelInfo& info = engine.info();
  for (const auto& warning : engine.warnings()) banner.line(fmt::format("warning: {}", warning));
  banner.line(fmt::format("model: {} ({}, {}, {:.1f}M parameters)", flags.service.model_id, info.model_type,
                          info.weights_label, static_cast<double>(info.parameters) / 1e6));
  if (info.encoder && (info.labels > 0 || flags.service.reranking_only)) {
    banner.line(fmt::format("reranking: up to {} tokens a document with its query", engine.max_input()));
    return;
  }
  if (info.encoder) {
    banner.line(fmt::format("embeddings: {} dimensions, up to {} tokens", info.hidden, engine.max_input()));
    return;
  }
  banner.line(fmt::format("KV cache: {}", engine.kv_label()));
  if (!engine.draft_kind().empty()) banner.line(fmt::format("speculation: {}", engine.speculation_label()));
  for (const auto& adapter : engine.adapters())
    banner.line(fmt::format("adapter {}: {} ({}, rank {}, scale {:g})", adapter.id, adapter.path,
                            adapter.format, adapter.rank, adapter.scale));
  banner.line(fmt::format("slots: {}, window {} tokens each", flags.parallel, engine.context()));
  if (!engine.chat_template() && flags.service.chat_template.empty()) {
    banner.line("chat template: none; /v1/chat/completions will refuse, /v1/completions serves");
  }
}

PresetFile preset_file(const ServeFlags& flags) {
  const std::string& path = flags.router.preset;
  if (path.empty()) return {};
  return read_presets(text_file(path, "--models-preset", size_t{1} << 20), path);
}

/// The form that flags want of every answer; one that cannot be enforced is a usage error.
void check_form(const ServeFlags& flags, const Engine& engine) {
  const OutputForm form = default_form(flags.service);
  if (form.kind == OutputForm::Kind::free) return;
  try {
    form_grammar(engine, form);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// Tokens that flags name must be the model's.
void check_biases(const ServeFlags& flags, const Engine& engine) {
  if (engine.info().encoder) return;
  SamplingParams params;
  params.logit_bias = flags.service.sampling.logit_bias;
  params.banned = flags.service.sampling.banned;
  check_sampling(params, engine.info().vocab_size);
}

/// One model, loaded for good or until nobody asks for it any more.
void serve_one(ServeFlags& flags, const Banner& banner, Service& service, const Server& server,
               std::unique_ptr<ModelPool>& pool) {
  const EngineOptions options = server_engine_options(flags);
  log::info("server", "listening on {}, loading {}", server.address(), flags.service.model_path);
  std::shared_ptr<Engine> engine = load_engine(flags.model, options);
  introduce(banner, flags, *engine);
  check_form(flags, *engine);
  check_biases(flags, *engine);
  SideModels sides = load_sides(flags, *engine);
  if (sides.embedder) banner.line(fmt::format("embeddings: {}", sides.embedder.id));
  if (sides.reranker) banner.line(fmt::format("reranking: {}", sides.reranker.id));
  service.set_sides(std::move(sides.embedder), std::move(sides.reranker));
  if (flags.sleep_idle_seconds < 0) return service.ready(std::move(engine));
  PoolModel model;
  model.options = flags.service;
  model.source = "single";
  model.idle_seconds = flags.sleep_idle_seconds;
  model.load = [flags] {
    return std::shared_ptr<Engine>(load_engine(flags.model, server_engine_options(flags, false)));
  };
  const auto again = model;
  model.engine = std::move(engine);
  pool = std::make_unique<ModelPool>(service, PoolOptions{.max_loaded = 1, .single = true},
                                     [first = std::move(model), again]() mutable {
                                       PoolModel out = first;
                                       first = again;
                                       return std::vector<PoolModel>{std::move(out)};
                                     });
  banner.line(fmt::format("idle: the model goes after {:g} seconds", flags.sleep_idle_seconds));
  service.set_state(Service::State::ready);
}

void serve_several(const ServeFlags& flags, const PresetFile& presets, const Banner& banner, Service& service,
                   std::unique_ptr<ModelPool>& pool) {
  PoolOptions options;
  options.max_loaded = flags.router.most;
  options.autoload = flags.router.autoload;
  options.stop_seconds = presets.stop_seconds;
  pool = std::make_unique<ModelPool>(service, options, [flags, presets = presets, first = true]() mutable {
    if (!std::exchange(first, false) && !flags.router.preset.empty()) {
      try {
        presets = preset_file(flags);
      } catch (const UsageError& error) {
        fail_param("reload", "{}", error.what());
      }
    }
    return find_models(flags, presets);
  });
  banner.line(fmt::format("router: {} models, {} at once", pool->models().size(),
                          options.max_loaded == 0 ? "any number" : std::to_string(options.max_loaded)));
  service.set_state(Service::State::ready);
}

}  // namespace

int serve_command(int argc, char** argv, const char* program) {
  ServeFlags flags = parse_serve_flags(argc, argv, program);
  set_up_log(flags);
  PresetFile presets;
  if (flags.several) {
    engine_options(flags.model);  // threads and precision are the process's
    presets = preset_file(flags);
    flags.service.model_id = "router";
  } else {
    surgery_edit(flags.model);  // a bad file ends here
    check(flags.model.rope);
    const std::filesystem::path path = resolve(flags.model);
    if (flags.model.estimate)
      preflight(flags.model, path, flags.parallel, flags.engine.max_kv_size,
                {drafter_of(flags), flags.engine.adapters});
    if (flags.service.aliases.empty()) flags.service.model_id = path.filename().string();
    if (flags.service.model_id.empty()) flags.service.model_id = path.parent_path().filename().string();
    flags.service.model_path = path.string();
  }
  flags.service.mlx_version = mlx::core::version();
  flags.service.device = device_label();

  const Banner banner(flags);
  banner.line(version_line());
  banner.line(fmt::format("device: {}", device_label()));
  for (const auto& note : environment_notes()) banner.line(note);
  warn_open(flags, banner);
  for (const auto& note : flags.notes) banner.line(note);
  if (flags.decode_guard) banner.line("warning: --decode-timeout 0: the guard of 300 seconds stays");

  // The server is declared before an engine can exist and ends after it: the engine's events run on its
  // threads.
  Service service(flags.service);
  Router router(service);
  try {
    add_all_routes(router);
  } catch (const Error& error) {
    throw UsageError(error.what());  // a path from the environment that is taken
  }
  Server server(router, flags.transport);
  Router metrics_router(service);
  std::unique_ptr<Server> metrics_server;  // on a port of its own
  if (flags.transport.metrics_port >= 0) {
    metrics_router.serve_metrics_alone();
    add_metrics_routes(metrics_router);
    TransportOptions transport = flags.transport;
    transport.port = transport.metrics_port;
    transport.handle_signals = false;
    transport.threads = 1;
    metrics_server = std::make_unique<Server>(metrics_router, transport);
  }
  std::unique_ptr<ModelPool> pool;
  server.on_signal([&service] {
    // Nothing can be running before the model is there, and loading cannot be interrupted.
    if (service.state() == Service::State::loading) std::_Exit(0);
  });
  std::string why;
  server.watch_failure([&service, &why] {
    const ModelPool* models = service.pool();
    if (models && !models->options().single) return false;  // a router goes on without the one that stopped
    const auto engine = models ? models->models().front().service->engine() : service.engine();
    const auto failure = engine ? engine->failure() : std::nullopt;
    if (failure) why = *failure;
    return failure.has_value();
  });
  server.start();
  if (metrics_server) {
    metrics_server->start();
    banner.line(fmt::format("metrics on {}/metrics", metrics_server->address() + flags.service.api_prefix));
  }
  notify_supervisor("STATUS=loading the model");
  try {
    if (flags.several)
      serve_several(flags, presets, banner, service, pool);
    else
      serve_one(flags, banner, service, server, pool);
  } catch (...) {
    server.stop();
    server.wait();
    throw;
  }
  banner.line(fmt::format("ready on {}", server.address()));
  notify_supervisor("READY=1");

  const bool well = server.wait();
  give_up_transfers();  // of models that are being fetched: their threads are joined below
  notify_supervisor("STOPPING=1");
  metrics_server.reset();  // stops, and waits
  if (!well) say("{}: the engine has stopped: {}\n", program, why);
  pool.reset();
  service.release();
  return well ? 0 : 1;
}

}  // namespace mlxcel::app
