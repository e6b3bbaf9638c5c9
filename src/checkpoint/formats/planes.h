// Joins the planes of MLX's quantised layouts (`.weight` codes, `.scales`, `.biases`) into one weight with a
// logical shape. Bits and group follow from the shapes; the map decides between pairs that shapes leave open.
// Thread: any. Failure: bad_checkpoint naming the tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/formats/quant_map.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/source.h"

namespace mlxcel {

std::shared_ptr<Source> join_planes(StoredTensors tensors, const QuantMap& map,
                                    std::vector<std::string>& warnings);

}  // namespace mlxcel
