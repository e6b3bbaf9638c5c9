// The values behind a weight, computed in plain memory: float types widened, every quantised layout expanded.
// Thread: any. Failure: bad_checkpoint naming the weight for types that hold no numbers we know.
#pragma once

#include <cstdint>

#include "tensor/weight.h"

namespace mlxcel {

/// `weight.shape`, f32; affine values round once (code * scale + bias).
array float_values(const Weight& weight);
/// f32 values as another float type, to nearest even; bad_checkpoint naming `name` where one leaves its
/// range.
array narrowed(const array& values, mx::Dtype dtype, const std::string& name);
/// Element `index` of a packed row: codes of `bits` bits, least significant first, across 32-bit words.
uint32_t packed_code(const uint32_t* row, int64_t index, int bits);

}  // namespace mlxcel
