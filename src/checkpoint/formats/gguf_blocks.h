// ggml's block types as weights: dense arrays, or MLX's planes with the same values. Code order becomes MLX's
// (a little-endian bit stream along the input axis).
// Exact: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 MXFP4, and Q4_K Q5_K, whose scale and minimum are products of
// an f16 and a 6-bit number and are held in f32. Q2_K Q3_K Q6_K have groups of 16, which MLX has not: dense
// f16, one rounding (f32 where a value is beyond f16). Source of the layouts: ggml-common.h, ggml-quants.c.
// Thread: any.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/formats/gguf_file.h"
#include "checkpoint/source.h"
#include "tensor/weight.h"

namespace mlxcel {

/// Where a row of the result comes from; nothing for the order of the file.
using RowOrder = std::function<int64_t(int64_t row)>;

/// What load_gguf_tensor will give, from the header alone. Scales and dense values of rare files turn out
/// f32 where f16 cannot hold them.
WeightInfo describe_gguf_tensor(const GgufTensor& tensor);

Weight load_gguf_tensor(const GgufTensor& tensor, const std::string& name, const RowOrder& order = {});

}  // namespace mlxcel
