// What an engine counts, as Prometheus text (features.md 20). Thread: any.
#pragma once

#include <string>

#include "engine/stats.h"

namespace mlxcel {

/// `since`: the figures of the scrape before, for rates; `longest`: tokens of the longest sequence seen.
void print_engine_metrics(std::string& out, const EngineStats& stats, const EngineStats& since,
                          int64_t longest);

}  // namespace mlxcel
