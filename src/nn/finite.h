// Weights that are numbers. Plain memory work: any thread.
#pragma once

#include <string>

#include "tensor/weight.h"

namespace mlxcel {

/// bad_checkpoint, naming the weight, the place and what stands there, for a NaN or an infinity: among all
/// values of a dense weight, among the scales and biases of a quantised one.
void require_finite(const std::string& name, const Weight& weight);

}  // namespace mlxcel
