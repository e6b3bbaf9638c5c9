// MLXCEL_TRACE_ARCH and MLXCEL_TRACE_DTYPE: how a model was recognised and how its layers are stored, on
// stderr. Thread: main.
#pragma once

#include "checkpoint/checkpoint.h"

namespace mlxcel::app {

/// Nothing unless one of the variables asks for it.
void trace_checkpoint(const Checkpoint& checkpoint);

}  // namespace mlxcel::app
