#include "nn/layer_plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "nn/dims.h"

namespace mlxcel {

std::vector<bool> LayerPlan::listed_types(const Config& config, int layers) {
  std::vector<bool> sliding;
  if (!config.has("layer_types")) return sliding;
  const auto types = config.get<std::vector<std::string>>("layer_types");
  if (static_cast<int>(types.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: layer_types: expected {} entries (num_hidden_layers), found {}",
         config.where(), layers, types.size());
  for (const auto& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      fail(ErrorKind::unsupported,
           "{}: layer_types: \"{}\" is not supported here: expected full_attention or "
           "sliding_attention",
           config.where(), type);
    sliding.push_back(type == "sliding_attention");
  }
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

}  // namespace mlxcel
