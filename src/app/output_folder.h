// The folder that `quantize` and `split-mtp` write. Thread: main.
#pragma once

#include <string>

#include "models/export.h"

namespace mlxcel::app {

/// Before a model is touched: UsageError where something is there that may not be replaced.
void check_output(const std::string& target, bool force);
/// Writes it with a progress bar on a terminal. Ctrl-C leaves nothing of it (Interrupted).
void write_output(const Checkpoint& checkpoint, const ExportPlan& plan, const ExportOptions& options,
                  const std::string& target, bool force);

}  // namespace mlxcel::app
