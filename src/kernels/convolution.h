// Convolution over one to three axes of positions, channels last as MLX has them: towers of vision and audio.
// Windows times weights are a product of packed rows (matrix.h), put together a tile at a time and read where
// they lie if they lie in one piece; depthwise convolutions have bodies of their own (isa/depthwise.h). The
// twin is MLX's conv_general.
// Owner: shared, immutable after construction. Thread: construction is memory work for any thread; calls
// build graph and belong to the model thread.
// Promise (CPU native): a position of the output depends, bit for bit, on its window alone: not on the batch,
// on what lies beside the window, or on how many positions there are. Padding is zeros.
// Failure: bad_checkpoint where the numbers do not fit together, with the weight's name.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/matrix.h"
#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace mlxcel::kernels {

/// Numbers by axis, in the weight's order; none: 1 each, or 0 of padding.
struct ConvolutionForm {
  std::vector<int> stride{};
  std::vector<int> before{}, after{};  // zeros in front of an axis and behind it: (taps - 1, 0) is causal
  std::vector<int> dilation{};
  int groups = 1;  // input channels go to as many outputs as there are groups, in order
  Activation activation = Activation::none;
};

class Convolution {
 public:
  /// weight [out, kernel of 1 to 3 axes, in / groups], dense, or quantised along its last axis where that has
  /// whole groups of the format; bias [out]. Both are evaluated.
  /// Dense elements are multiplied and summed in f32 in every precision(), a window's taps in order, each
  /// tap's channels in order. Quantised ones follow precision() when called, as Matrix does: `high` rounds a
  /// window to 16 bits for every 32 of its values, `fast` to 8 bits, `exact` keeps f32.
  Convolution(const Weight& weight, const std::optional<array>& bias, const ConvolutionForm& form);

  /// Transposed, of one axis: weight [out, kernel, in], dense, groups and dilation 1. Every input position
  /// adds its kernel `stride` positions after the one before it; `before` and `after` positions are cut off
  /// the sum (torch's padding, and padding - output_padding).
  /// A negative `after` reaches into the zeros that fill the last stride. Results are as of the constructor.
  static Convolution transposed(const Weight& weight, const std::optional<array>& bias,
                                const ConvolutionForm& form);

  /// x [images, positions of each axis, in] -> f32 [images, positions, out], activation(sum + bias).
  /// invalid_request where a padded axis is shorter than its window or the result is too large.
  array operator()(const array& x) const;

  Shape output_shape(const Shape& x) const;
  size_t bytes() const;  // memory held by weights

  struct Storage;

 private:
  explicit Convolution(std::shared_ptr<const Storage> storage) : storage_(std::move(storage)) {}
  std::shared_ptr<const Storage> storage_;
};

}  // namespace mlxcel::kernels
