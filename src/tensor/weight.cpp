#include "tensor/weight.h"

#include <cstring>

#include "base/error.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

bool same_bytes(const array& a, const array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(bytes_of(a), bytes_of(b), a.nbytes()) == 0;
}

bool same_bytes(const std::optional<array>& a, const std::optional<array>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return same_bytes(*a, *b);
}

}  // namespace

const char* to_string(QuantMode mode) {
  switch (mode) {
    case QuantMode::affine:
      return "affine";
    case QuantMode::mxfp4:
      return "mxfp4";
    case QuantMode::nvfp4:
      return "nvfp4";
    case QuantMode::mxfp8:
      return "mxfp8";
  }
  return "affine";
}

array dequantized(const Weight& weight, mx::Dtype dtype) {
  if (!weight.quantized()) return mx::astype(weight.data, dtype);
  if (!weight.scales) fail(ErrorKind::internal, "{}: quantised without scales", weight.name);
  const QuantFormat& format = *weight.format;
  if (format.mode == QuantMode::affine) {
    if (!weight.biases) fail(ErrorKind::internal, "{}: affine without biases", weight.name);
    // Widened first: code * scale + bias then rounds once, in f32, whatever the type of the scales.
    const array dense =
        mx::dequantize(weight.data, mx::astype(*weight.scales, mx::float32),
                       mx::astype(*weight.biases, mx::float32), format.group_size, format.bits);
    return mx::astype(dense, dtype);
  }
  const array dense = mx::dequantize(weight.data, *weight.scales, std::nullopt, format.group_size,
                                     format.bits, to_string(format.mode), std::nullopt, mx::float32);
  return mx::astype(dense, dtype);
}

bool identical(const Weight& a, const Weight& b) {
  return a.format == b.format && a.shape == b.shape && same_bytes(a.data, b.data) &&
         same_bytes(a.scales, b.scales) && same_bytes(a.biases, b.biases);
}

}  // namespace mlxcel
