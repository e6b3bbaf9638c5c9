// Quantised weights that follow from a name, like the dense ones of models/synthetic.h: affine codes, float16
// scales and biases, equal in value to tools/golden/synthetic.py (affine_values). Owner: shared_ptr<Source>.
// Thread: any.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/synthetic.h"

namespace mlxcel::golden {

using Formats = std::map<std::string, QuantFormat>;  // by tensor name

/// These tensors, dense but for those named in `formats`.
std::shared_ptr<Source> source_of(const std::vector<TensorShape>& tensors, const Formats& formats);

}  // namespace mlxcel::golden
