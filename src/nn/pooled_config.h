// How configs of DeepSeek-V4's line spell attention over pooled keys. Thread: any.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "nn/dims.h"
#include "nn/pooled.h"

namespace mlxcel {

/// Each layer's kind: listed, or as runs per entry (0, 4, 128), or the publisher's pattern.
std::vector<std::string> pooled_kinds(const Config& config, int layers);

/// A layer's options by its kind.
PooledOptions pooled_options(const Config& config, const Dims& dims, const std::string& kind, float eps);

}  // namespace mlxcel
