// Parameters of a request's query. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace mlxcel {

/// The first value of that name, percent-decoded; nothing where it has none.
std::optional<std::string> query_parameter(const HttpRequest& request, std::string_view name);

}  // namespace mlxcel
