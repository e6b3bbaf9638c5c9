// The one header an architecture file includes: configs, weights, parts, skeletons, rules
// (docs/adding-a-model.md walks through it).
#pragma once

#include "base/error.h"           // IWYU pragma: export
#include "checkpoint/config.h"    // IWYU pragma: export
#include "checkpoint/rules.h"     // IWYU pragma: export
#include "kernels/elementwise.h"  // IWYU pragma: export
#include "kernels/matrix.h"       // IWYU pragma: export
#include "models/arch.h"          // IWYU pragma: export
#include "models/decoder.h"       // IWYU pragma: export
#include "models/encoder.h"       // IWYU pragma: export
#include "models/pre_norm.h"      // IWYU pragma: export
#include "models/wrapper.h"       // IWYU pragma: export
#include "nn/attention.h"         // IWYU pragma: export
#include "nn/dims.h"              // IWYU pragma: export
#include "nn/glu.h"               // IWYU pragma: export
#include "nn/layer_plan.h"        // IWYU pragma: export
#include "nn/linear.h"            // IWYU pragma: export
#include "nn/mla.h"               // IWYU pragma: export
#include "nn/mlp.h"               // IWYU pragma: export
#include "nn/moe.h"               // IWYU pragma: export
#include "nn/norm.h"              // IWYU pragma: export
#include "nn/rope.h"              // IWYU pragma: export
#include "nn/ssm.h"               // IWYU pragma: export
#include "nn/weights.h"           // IWYU pragma: export
