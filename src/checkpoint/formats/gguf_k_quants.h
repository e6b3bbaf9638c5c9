// ggml's super-blocks of 256 elements. Source: ggml-common.h (layouts), ggml-quants.c (dequantize_row_*).
// Thread: any; pure functions on one block.
#pragma once

#include <cstdint>

#include "checkpoint/formats/gguf_file.h"

namespace mlxcel {

/// Q4_K, Q5_K: a scale and a bias (minus the minimum) for each of eight groups of 32; exact in f32.
void k_scales(const uint8_t* block, float scales[8], float biases[8]);
/// Q4_K, Q5_K: the 256 codes in element order.
void k_codes(GgmlType type, const uint8_t* block, uint8_t codes[256]);
/// Q2_K, Q3_K, Q6_K: the 256 values.
void k_values(GgmlType type, const uint8_t* block, float values[256]);

}  // namespace mlxcel
