#include "nn/layer_plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "nn/dims.h"

namespace mlxcel {

std::vector<bool> LayerPlan::listed_types(const Config& config, int layers) {
  std::vector<bool> sliding;
  for (const auto& kind :
       listed_kinds(config, "layer_types", layers, {"full_attention", "sliding_attention"}))
    sliding.push_back(kind == "sliding_attention");
  return sliding;
}

LayerPlan LayerPlan::checked(const Config& config) const {
  for (const bool sliding : sliding_)
    if (sliding && window_ <= 0)
      fail(ErrorKind::bad_checkpoint, "{}: sliding layers need sliding_window, a positive number",
           config.where());
  return *this;
}

std::vector<std::string> listed_kinds(const Config& config, const char* key, int layers,
                                      const std::vector<std::string>& known) {
  if (!config.has(key)) return {};
  auto kinds = config.get<std::vector<std::string>>(key);
  // Some list their layers of next-token prediction too.
  const auto further = static_cast<size_t>(config.integer("num_nextn_predict_layers", 0, 64, 0));
  if (kinds.size() == static_cast<size_t>(layers) + further) kinds.resize(static_cast<size_t>(layers));
  if (static_cast<int>(kinds.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} entries (num_hidden_layers), found {}",
         config.where(), key, layers, kinds.size());
  for (const auto& kind : kinds)
    if (std::find(known.begin(), known.end(), kind) == known.end())
      fail(ErrorKind::unsupported, "{}: {}: \"{}\" is not supported here: expected {}", config.where(), key,
           kind, fmt::join(known, " or "));
  return kinds;
}

std::vector<bool> full_attention_layers(const Config& config, int layers) {
  const auto kinds = listed_kinds(config, "layer_types", layers, {"linear_attention", "full_attention"});
  const int interval = kinds.empty() ? config.integer("full_attention_interval", 1, kMaxLayers, 4) : 1;
  std::vector<bool> full;
  for (int i = 0; i < layers; ++i)
    full.push_back(kinds.empty() ? (i + 1) % interval == 0
                                 : kinds[static_cast<size_t>(i)] == "full_attention");
  return full;
}

std::vector<bool> rotated_layers(const Config& config, int layers, int interval) {
  const auto listed = config.get<std::vector<int>>("no_rope_layers", {});
  std::vector<bool> rotated;
  if (listed.empty()) {
    const int every = config.integer("no_rope_layer_interval", 1, 1 << 20, interval);
    for (int i = 0; i < layers; ++i) rotated.push_back((i + 1) % every != 0);
    return rotated;
  }
  if (static_cast<int>(listed.size()) < layers)
    fail(ErrorKind::bad_checkpoint, "{}: no_rope_layers: expected {} entries (num_hidden_layers), found {}",
         config.where(), layers, listed.size());
  for (int i = 0; i < layers; ++i) rotated.push_back(listed[static_cast<size_t>(i)] != 0);
  return rotated;
}

}  // namespace mlxcel
