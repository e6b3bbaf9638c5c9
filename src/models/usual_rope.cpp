#include "models/usual_rope.h"

#include <fmt/format.h>

namespace mlxcel {

Rope rope_or(const Config& config, const Dims& dims, const RopeOptions& options, const char* usual) {
  if (!config.child("rope_parameters").empty() || !config.child("rope_scaling").empty())
    return Rope::from(config, dims, options);
  RopeOptions own = options;
  own.theta = config.get<float>(options.theta_key, options.theta);
  return Rope::from(Config::parse(fmt::format(R"({{"rope_parameters": {}}})", usual), config.where()), dims,
                    own);
}

}  // namespace mlxcel
