// AArch64's bodies, beside the headers of the other sets: neon has dot products, i8mm products of unsigned by
// signed bytes as well. Plain C types only.
#pragma once

#include "kernels/isa/attention_call.h"
#include "kernels/isa/depthwise.h"
#include "kernels/isa/matmul.h"
#include "kernels/isa/recurrent.h"
#include "kernels/isa/rowwise.h"

namespace mlxcel::kernels {

extern const AttentionBodies kAttentionNeon;  // empty on other machines
#if defined(__aarch64__)
const MatmulBodies& matmul_neon();
const MatmulBodies& matmul_i8mm();
const RowwiseBodies& rowwise_neon();
const RecurrentBodies& recurrent_neon();
const DepthwiseBodies& depthwise_neon();
#endif

}  // namespace mlxcel::kernels
