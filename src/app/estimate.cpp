#include "app/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "app/say.h"
#include "app/terminal.h"
#include "base/memory.h"
#include "models/side_drafter.h"

namespace mlxcel::app {
namespace {

double environment_number(const char* name, double fallback) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !std::isfinite(value) || value <= 0) {
    say("warning: {}={}: expected a positive number; using {}\n", name, text, fallback);
    return fallback;
  }
  return value;
}

KvPlan kv_plan(const ModelPlan& plan, const std::string& mode) {
  if (plan.layout.kv().empty()) return {};
  return plan_kv(plan.layout, {.mode = parse_kv_mode(mode)}, plan.info.checkpoint_dtype, plan.info.layers,
                 plan.info.model_type);
}

/// Keys and values of all layers: tokens in steps of 256, windows capped at what they can hold; where near
/// keys bring values that are not coded, both once more for so many tokens.
std::uintmax_t kv_bytes(const StateLayout& layout, const KvPlan& kv, std::uintmax_t tokens) {
  std::uintmax_t total = 0;
  for (size_t slot = 0; slot < layout.kv().size(); ++slot) {
    const KvSpec& spec = layout.kv()[slot];
    StateLayout alone;
    alone.add_kv(spec);
    const auto add = [&](int most, const KvFormat& format) {
      const std::uintmax_t kept = most > 0 ? std::min(tokens, static_cast<std::uintmax_t>(most)) : tokens;
      total += (kept + 255) / 256 * 256 * alone.kv_bytes_per_token({format});
    };
    add(spec.window, kv.formats[slot]);
    if (!kv.recent.empty() && kv.recent[slot] > 0)
      add(kv.recent[slot], {kv.formats[slot].keys, kv.formats[slot].keys});
  }
  return total;
}

}  // namespace

std::vector<KvFormat> kv_formats(const ModelPlan& plan, const std::string& mode) {
  return kv_plan(plan, mode).formats;
}

Estimate estimate_memory(const ModelPlan& plan, const Config& config, const std::string& kv_mode,
                         std::uintmax_t tokens, std::uintmax_t batch, std::uintmax_t chunk,
                         std::uintmax_t beside) {
  const KvPlan kv = kv_plan(plan, kv_mode);
  Estimate e;
  e.weights = plan.info.weight_bytes;
  e.kv = batch * (kv_bytes(plan.layout, kv, tokens) + plan.layout.recurrent_bytes());
  e.kv_per_token = plan.layout.kv_bytes_per_token(kv.formats);
  const double factor = environment_number("MLXCEL_HEADROOM_FACTOR", 1.20);
  e.beside = beside;
  const double base = static_cast<double>(e.weights + e.kv + e.beside);
  e.headroom = factor > 1.0 ? static_cast<std::uintmax_t>(base * (factor - 1.0)) : 0;
  const std::uintmax_t hidden = static_cast<std::uintmax_t>(plan.info.hidden);
  const std::uintmax_t inner =
      static_cast<std::uintmax_t>(config.has("intermediate_size") && !config.is_array("intermediate_size")
                                      ? config.get<int>("intermediate_size")
                                      : 4 * plan.info.hidden);
  const std::uintmax_t pass = chunk == 0 ? tokens : std::min(tokens, chunk);
  e.activation = static_cast<std::uintmax_t>(environment_number("MLXCEL_ACTIVATION_MULT", 3.0) *
                                             static_cast<double>(batch * pass * (hidden + inner) * 2)) +
                 batch * static_cast<std::uintmax_t>(plan.info.vocab_size) * 2;
  e.total = e.weights + e.kv + e.beside + e.headroom + e.activation + e.inflight;
  // A limit that was set is the budget itself, whatever else is free.
  const char* limit = std::getenv("MLXCEL_MEMORY_LIMIT");
  const auto set = limit ? parse_limit(limit) : std::nullopt;
  e.budget = set && *set > 0 ? *set : available_memory();
  e.fits = e.total <= e.budget;
  return e;
}

std::string estimate_text(const ModelPlan& plan, const Estimate& e, std::uintmax_t tokens,
                          std::uintmax_t batch) {
  std::string text = fmt::format("weights      {}, {}\n", plan.info.weights_label, human_bytes(e.weights));
  if (!plan.layout.kv().empty())
    text += fmt::format("KV cache     {} for {} x {} tokens ({} bytes a token)\n", human_bytes(e.kv), batch,
                        tokens, e.kv_per_token);
  if (!plan.layout.recurrent().empty())
    text += fmt::format("state        {} a sequence\n", human_bytes(plan.layout.recurrent_bytes()));
  if (e.beside > 0) text += fmt::format("beside       {} (drafter, adapters)\n", human_bytes(e.beside));
  text += fmt::format("activation   {}\nheadroom     {}\nin flight    {}\ntotal        {}\navailable    {}\n",
                      human_bytes(e.activation), human_bytes(e.headroom), human_bytes(e.inflight),
                      human_bytes(e.total), human_bytes(e.budget));
  if (!e.fits) text += "does not fit: lower the window or the batch, or take a smaller quantisation\n";
  return text;
}

std::uintmax_t bytes_beside(const Beside& beside, std::uintmax_t tokens, std::uintmax_t batch) {
  std::uintmax_t bytes = 0;
  const auto stored = [&](const Source& source) {
    for (const std::string& name : source.names())
      if (const auto info = source.find(name)) bytes += info->bytes;
  };
  if (!beside.drafter.empty()) {
    const Checkpoint drafter = open_checkpoint(beside.drafter);
    if (drafter_kind(drafter.config) == DrafterKind::model) {
      const ModelPlan plan = plan_model(drafter.config, drafter.source);
      bytes += plan.info.weight_bytes +
               batch * (kv_bytes(plan.layout, kv_plan(plan, "fp16"), tokens) + plan.layout.recurrent_bytes());
    } else {
      stored(*drafter.source);
    }
  }
  for (const AdapterSource& adapter : beside.adapters) {
    std::error_code error;
    if (std::filesystem::is_regular_file(adapter.path, error))
      bytes += std::filesystem::file_size(adapter.path, error);
    for (const auto& file : std::filesystem::directory_iterator(adapter.path, error))
      if (file.path().extension() == ".safetensors") bytes += file.file_size(error);
  }
  return bytes;
}

void preflight(const ModelFlags& flags, const std::filesystem::path& model, int rows, int most,
               const Beside& beside) {
  const Checkpoint checkpoint = open_checkpoint(model);
  const ModelPlan plan = plan_model(checkpoint.config, checkpoint.source);
  const int own = plan.info.max_positions > 0 ? plan.info.max_positions : 4096;
  const int wanted = flags.context > 0 ? flags.context : own;
  const auto window = static_cast<std::uintmax_t>(most > 0 ? std::min(wanted, most) : wanted);
  const auto batch = static_cast<std::uintmax_t>(rows);
  const Estimate e =
      estimate_memory(plan, checkpoint.config, flags.kv_cache_mode, window, batch,
                      static_cast<std::uintmax_t>(flags.prefill_chunk), bytes_beside(beside, window, batch));
  say("{}", estimate_text(plan, e, window, batch));
  if (!e.fits && !flags.force)
    fail(ErrorKind::out_of_memory,
         "{}: needs {}, {} are available; a smaller --ctx-size may fit, --force tries it "
         "all the same",
         model.filename().string(), human_bytes(e.total), human_bytes(e.budget));
}

}  // namespace mlxcel::app
