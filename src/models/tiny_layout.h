// What an architecture's rows remember, from its tests' model and without a checkpoint. Thread: any.
#pragma once

#include "models/model.h"

namespace mlxcel {

/// Of the family's tiny model: which layers keep keys and values, latents or states. Empty for encoders.
StateLayout tiny_layout(const ArchEntry& entry);

}  // namespace mlxcel
