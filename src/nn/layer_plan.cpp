#include "nn/layer_plan.h"

#include "base/error.h"

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

}  // namespace mlxcel
