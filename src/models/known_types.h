// Models that the product knows by name and does not run yet. Thread: any.
#pragma once

#include <string_view>

namespace mlxcel {

/// Why not, where there is more to say than that it is not there yet; else empty.
std::string_view missing_part(std::string_view model_type);

}  // namespace mlxcel
