// Families whose rotation is scaled where a config names none. Thread: any.
#pragma once

#include "nn/rope.h"

namespace mlxcel {

/// What the config asks for, or `usual` (JSON, as rope_parameters) where rope_parameters and rope_scaling are
/// absent, null or empty; a base in `usual` comes before the config's own. Failure: as Rope::from.
Rope rope_or(const Config& config, const Dims& dims, const RopeOptions& options, const char* usual);

}  // namespace mlxcel
