// A weight as its file holds it: a dense array, or the code, scale and bias planes of a quantised one.
// Owner: whoever holds the value; arrays are evaluated (plain memory, often a mapped file), so a Weight
// may cross threads. Sources: MLX's quantized ops for the planes' layout, spec of each mode below.
#pragma once

#include <optional>
#include <string>

#include "tensor/tensor.h"

namespace mlxcel {

enum class QuantMode { affine, mxfp4, nvfp4, mxfp8 };

const char* to_string(QuantMode mode);

/// affine: bits 2,3,4,5,6,8 and group 32,64,128, value = code * scale + bias.
/// mxfp4: 4 bits, group 32, E8M0 scales. nvfp4: 4 bits, group 16, E4M3 scales. mxfp8: 8 bits, group 32, E8M0.
struct QuantFormat {
  QuantMode mode = QuantMode::affine;
  int bits = 4;
  int group_size = 64;
  bool operator==(const QuantFormat&) const = default;
};

struct Weight {
  std::string name;             // as the checkpoint spells it after the rules, e.g. "…q_proj.weight"
  Shape shape;                  // logical: [out, in], [experts, out, in], [width], …
  array data;                   // dense: `shape`; quantised: uint32 [..., out, in * bits / 32]
  std::optional<array> scales;  // quantised: [..., out, in / group]; float for affine, uint8 otherwise
  std::optional<array> biases;  // affine only, same shape and dtype as scales
  std::optional<QuantFormat> format;

  bool quantized() const { return format.has_value(); }
};

/// The dense values, as `dtype`. Built of MLX operations: model thread.
array dequantized(const Weight& weight, mx::Dtype dtype);

/// Equal in format, shape and every stored byte. Plain memory: any thread.
bool identical(const Weight& a, const Weight& b);

}  // namespace mlxcel
