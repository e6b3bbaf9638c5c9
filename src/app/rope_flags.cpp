#include "app/rope_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/options.h"
#include "base/error.h"
#include "models/model.h"

namespace mlxcel::app {
namespace {

using Json = nlohmann::ordered_json;

void require_positive(const std::optional<double>& value, const char* flag) {
  if (value && !(std::isfinite(*value) && *value > 0))
    throw UsageError(fmt::format("{} {}: expected a positive number", flag, *value));
}

/// -1 stands for the model's own value.
std::optional<double> given(const std::optional<double>& value) {
  return value && *value != -1 ? value : std::nullopt;
}

std::optional<double> factor_of(const RopeFlags& flags) {
  if (flags.scale) return flags.scale;
  if (flags.freq_scale) return 1.0 / *flags.freq_scale;
  return std::nullopt;
}

/// The table of one rotation, whatever the config calls it.
struct Block {
  Json* table;
  bool theta_inside;
};

Block find_block(Json& config) {
  Json& parameters = config["rope_parameters"];
  if (parameters.is_object() && !parameters.empty()) {
    // Tables for each layer type: the overrides belong to the long-context layers.
    if (parameters.contains("full_attention")) return {&parameters["full_attention"], true};
    return {&parameters, true};
  }
  config.erase("rope_parameters");
  Json& scaling = config["rope_scaling"];
  if (!scaling.is_object()) scaling = Json::object();
  return {&scaling, false};
}

void apply(Json& config, const RopeFlags& flags) {
  const auto [table, theta_inside] = find_block(config);
  Json& block = *table;
  const int window = config.value("max_position_embeddings", 0);
  if (flags.freq_base) {
    if (theta_inside) block["rope_theta"] = *flags.freq_base;
    if (!theta_inside) config["rope_theta"] = *flags.freq_base;
  }
  const std::string own = block.value("rope_type", block.value("type", std::string("default")));
  std::string type = flags.scaling;
  const auto factor = factor_of(flags);
  if (type.empty() && factor) type = own == "yarn" ? "yarn" : "linear";
  if (type.empty() && own == "yarn") type = "yarn";
  if (type.empty()) {
    if (block.empty() && !theta_inside) config.erase("rope_scaling");
    return;
  }
  const Json theta = block.value("rope_theta", Json()),
             partial = block.value("partial_rotary_factor", Json());
  Json next = type == own ? block : Json::object();
  if (theta_inside && !theta.is_null()) next["rope_theta"] = theta;
  if (!partial.is_null()) next["partial_rotary_factor"] = partial;
  next.erase("type");
  next["rope_type"] = type == "none" ? "default" : type;
  if (factor) next["factor"] = *factor;
  if (type == "none") next.erase("factor");
  if (type != "none" && !next.contains("factor")) next["factor"] = 1.0;
  if (type == "yarn") {
    const int original = flags.yarn_orig_ctx.value_or(0);
    if (original > 0) {
      next["original_max_position_embeddings"] = original;
      if (config.contains("original_max_position_embeddings"))
        config["original_max_position_embeddings"] = original;
    } else if (!next.contains("original_max_position_embeddings") && window > 0) {
      next["original_max_position_embeddings"] = window;
    }
    if (const auto v = given(flags.yarn_attn_factor)) next["attention_factor"] = *v;
    if (const auto v = given(flags.yarn_beta_slow)) next["beta_slow"] = *v;
    if (const auto v = given(flags.yarn_beta_fast)) next["beta_fast"] = *v;
    if (const auto v = given(flags.yarn_ext_factor)) next["extrapolation_factor"] = *v;
  }
  // A longer reach is what a scale is for.
  if (type != "none" && factor && *factor > 1 && window > 0) {
    const double base = next.value("original_max_position_embeddings", window);
    config["max_position_embeddings"] =
        std::max(window, static_cast<int>(std::min(base * *factor, 16777216.0)));
  }
  block = std::move(next);
}

void edit_config(Checkpoint& checkpoint, const std::function<void(Json&)>& edit) {
  Json config = Json::parse(checkpoint.config.dump(), nullptr, false);
  if (!config.is_object())
    fail(ErrorKind::unsupported, "{}: flags cannot edit this configuration", checkpoint.config.where());
  edit(config);
  checkpoint.config = Config::parse(config.dump(), checkpoint.config.where());
}

/// Flags that contradict the model, or each other.
void check(const DiffusionFlags& flags, const ModelInfo& info) {
  const Diffusion& model = info.diffusion;
  if (model.block == 0)
    throw UsageError(fmt::format(
        "--max-denoising-steps and --diffusion-*: {} writes one token after another; there is no block that "
        "it would fill in by rounds",
        info.model_type));
  // A block that is drawn anew in every round may have any number of them.
  if (flags.steps && !model.redraws && *flags.steps > model.block)
    throw UsageError(fmt::format("--max-denoising-steps {}: the blocks of this model have {} tokens",
                                 *flags.steps, model.block));
  if (flags.sampler && *flags.sampler != "confidence" && !model.redraws)
    throw UsageError(
        fmt::format("--diffusion-sampler {}: {} takes the tokens that it is surest of: confidence",
                    *flags.sampler, info.model_type));
  if (flags.sampler && *flags.sampler != "confidence" && flags.threshold)
    throw UsageError("--diffusion-threshold: belongs to --diffusion-sampler confidence");
  const auto length = [&](const char* flag, const std::optional<int>& tokens) {
    if (!tokens) return;
    if (!model.redraws)
      throw UsageError(fmt::format("{} {}: the blocks of {} have the {} tokens that it was trained with",
                                   flag, *tokens, info.model_type, model.block));
    if (*tokens > model.block)
      throw UsageError(fmt::format("{} {}: the longest of this model is {}", flag, *tokens, model.block));
  };
  length("--diffusion-max-canvas-length", flags.most);
  length("--diffusion-min-canvas-length", flags.least);
  if (flags.whole && !model.redraws)
    throw UsageError(fmt::format("--diffusion-full-canvas: the blocks of {} always have {} tokens",
                                 info.model_type, model.block));
  if (flags.least && flags.most && *flags.least > *flags.most)
    throw UsageError(fmt::format("--diffusion-min-canvas-length {}: over --diffusion-max-canvas-length {}",
                                 *flags.least, *flags.most));
  if (flags.whole && flags.least)
    throw UsageError(
        "--diffusion-full-canvas, --diffusion-min-canvas-length: blocks are always the longest, or not");
}

}  // namespace

bool RopeFlags::any() const {
  return !scaling.empty() || scale || freq_base || freq_scale || yarn_orig_ctx || yarn_ext_factor ||
         yarn_attn_factor || yarn_beta_slow || yarn_beta_fast;
}

std::string words_of(const RopeFlags& flags) {
  if (!flags.any()) return "";
  std::string out = fmt::format("rope {}", flags.scaling);
  for (const auto& value : {flags.scale, flags.freq_base, flags.freq_scale, flags.yarn_ext_factor,
                            flags.yarn_attn_factor, flags.yarn_beta_slow, flags.yarn_beta_fast})
    out += value ? fmt::format(" {}", *value) : " -";
  return out + (flags.yarn_orig_ctx ? fmt::format(" {}", *flags.yarn_orig_ctx) : " -");
}

void check(const RopeFlags& flags) {
  require_positive(flags.scale, "--rope-scale");
  require_positive(flags.freq_base, "--rope-freq-base");
  require_positive(flags.freq_scale, "--rope-freq-scale");
  require_positive(given(flags.yarn_attn_factor), "--yarn-attn-factor");
  require_positive(given(flags.yarn_beta_slow), "--yarn-beta-slow");
  require_positive(given(flags.yarn_beta_fast), "--yarn-beta-fast");
  if (const auto v = given(flags.yarn_ext_factor); v && !(*v >= 0 && *v <= 1))
    throw UsageError(fmt::format("--yarn-ext-factor {}: expected 0 to 1, or -1", *v));
  if (flags.scale && flags.freq_scale && std::abs(*flags.scale * *flags.freq_scale - 1) > 1e-6)
    throw UsageError(
        fmt::format("--rope-scale {} and --rope-freq-scale {} contradict each other: give one of them",
                    *flags.scale, *flags.freq_scale));
  if (flags.yarn_orig_ctx && (*flags.yarn_orig_ctx < 0 || *flags.yarn_orig_ctx > 1 << 24))
    throw UsageError(fmt::format("--yarn-orig-ctx {}: expected 0 to {}", *flags.yarn_orig_ctx, 1 << 24));
}

void override_rope(Checkpoint& checkpoint, const RopeFlags& flags) {
  if (!flags.any()) return;
  edit_config(checkpoint, [&](Json& config) {
    const bool inside = config.contains("text_config") && config["text_config"].is_object();
    apply(inside ? config["text_config"] : config, flags);
  });
}

void require_blocks(const Checkpoint& checkpoint, const DiffusionFlags& flags) {
  if (flags.any()) check(flags, plan_model(checkpoint.config, checkpoint.source).info);
}

void require_rotary(const Checkpoint& checkpoint, const RopeFlags& flags) {
  if (!flags.any()) return;
  for (const std::string& key : checkpoint.config.unread())
    for (const char* mine : {"rope_theta", "rope_scaling", "rope_parameters"})
      if (key == mine || key == std::string("text_config.") + mine ||
          key.starts_with(std::string(mine) + "."))
        fail(ErrorKind::unsupported,
             "{}: the model has no rotary positions that --rope-* and --yarn-* could change",
             checkpoint.path.string());
}

}  // namespace mlxcel::app
