// From flags to a loaded model: where it lies, what is done to it between opening and loading, what is said
// of it meanwhile.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "app/download_bars.h"
#include "app/environment.h"
#include "app/options.h"
#include "app/say.h"
#include "app/terminal.h"
#include "app/trace.h"
#include "base/file.h"
#include "base/worker_pool.h"
#include "checkpoint/surgery.h"
#include "hub/download.h"
#include "kernels/matrix.h"

namespace mlxcel::app {
namespace {

int bounded(long long value, long long low, long long high, const char* flag) {
  if (value < low || value > high)
    throw UsageError(fmt::format("{} {}: expected {} to {}", flag, value, low, high));
  return static_cast<int>(value);
}

/// Where weight edits are written, and which name brought them.
struct SurgeryFile {
  std::string path;  // empty: none
  const char* from = "--surgery";
};
SurgeryFile surgery_file(const ModelFlags& flags) {
  const char* variable = std::getenv("MLXCEL_SURGERY");
  if (variable && *variable && (flags.surgery.empty() || flags.surgery == variable))
    return {variable, "MLXCEL_SURGERY"};
  return {flags.surgery};
}

/// What makes these weights others than their files': the surgery's text and the overrides of positions.
std::string edits_in_words(const ModelFlags& flags) {
  const std::string file = surgery_file(flags).path;
  return (file.empty() ? "" : read_file(file, size_t{4} << 20)) + words_of(flags.rope);
}

}  // namespace

std::filesystem::path resolve(const ModelFlags& flags) {
  ResolveOptions options;
  if (!flags.models_dir.empty()) options.store = flags.models_dir;
  options.revision = flags.revision;
  options.file = flags.hf_file;
  const Reference reference = checked_reference(flags);
  if (reference.path && !flags.revision.empty())
    throw UsageError(fmt::format("--revision {}: {} is a local path; a revision needs owner/name",
                                 flags.revision, flags.model));
  if (flags.offline) go_offline();
  if (flags.fetch && !offline()) {
    options.fetch = [&](const Reference& source, const std::filesystem::path& folder) {
      say("{}: not here yet; fetching it\n", source.text);
      DownloadBars bars;
      download_model(
          source,
          {.folder = folder, .revision = flags.revision, .file = flags.hf_file, .token = flags.hf_token},
          bars);
    };
  } else if (offline()) {
    options.why_no_fetch = "offline";
  }
  return resolve_model(reference, options);
}

CheckpointEdit surgery_edit(const ModelFlags& flags) {
  const SurgeryFile file = surgery_file(flags);
  if (file.path.empty()) return nullptr;
  try {
    return [surgery = read_surgery(file.path)](Checkpoint& checkpoint) {
      checkpoint.source = operate(checkpoint.source, checkpoint.config, surgery);
    };
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", file.from, error.what()));
  }
}

EngineOptions engine_options(const ModelFlags& flags, EngineOptions options) {
  check_environment();
  surgery_edit(flags);  // a bad file ends here, before a model is touched
  check(flags.rope);
  options.context = bounded(flags.context, 0, 1 << 24, "--ctx-size");
  options.prefill_chunk = bounded(flags.prefill_chunk, 0, 1 << 24, "--prefill-chunk-size");
  options.kv_cache_mode = flags.kv_cache_mode;
  options.warmup = !flags.no_warmup;
  if (flags.threads != 0) WorkerPool::set_shared_threads(bounded(flags.threads, 1, 1024, "--threads"));
  if (!flags.cpu_precision.empty()) {
    try {
      kernels::set_precision(kernels::parse_precision(flags.cpu_precision));
    } catch (const Error& error) {
      throw UsageError(fmt::format("--cpu-precision: {}", error.what()));
    }
  }
  return options;
}

void refuse_media(const char* flag, const std::vector<std::string>& paths) {
  if (!paths.empty())
    fail(ErrorKind::unsupported, "{} {}: the models of this build take text only (`mlxcel arch`)", flag,
         paths.front());
}

std::unique_ptr<Engine> load_engine(const ModelFlags& flags, EngineOptions options) {
  const CheckpointEdit surgery = surgery_edit(flags);
  if (options.model.empty()) options.model = resolve(flags);
  ProgressBar bar("loading");
  options.progress = [&](size_t done, size_t total) { bar.update(done, total); };
  options.weight_edits = edits_in_words(flags);
  options.denoising = flags.diffusion;
  auto engine = Engine::load(options, [&](Checkpoint& checkpoint) {
    if (surgery) surgery(checkpoint);
    override_rope(checkpoint, flags.rope);
    require_blocks(checkpoint, flags.diffusion);
    trace_checkpoint(checkpoint);
  });
  require_rotary(engine->checkpoint(), flags.rope);
  return engine;
}

}  // namespace mlxcel::app
