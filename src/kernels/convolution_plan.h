// A convolution of one shape of input, over memory: where windows lie, products over them, depthwise tiles.
// Internal to this room. Thread: MLX's stream thread, or any other outside a pool region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa/depthwise.h"
#include "kernels/matmul.h"
#include "kernels/matrix.h"

namespace mlxcel::kernels {

/// The depthwise bodies of the instruction set in use.
const DepthwiseBodies& depthwise_bodies();

struct ConvolutionAxis {
  int in = 1, out = 1;  // positions
  int kernel = 1, stride = 1, dilation = 1, before = 0;

  /// Positions from a window's first tap to its last.
  int64_t span() const { return static_cast<int64_t>(kernel - 1) * dilation + 1; }
  /// Where the window of output position `o` begins; may lie before the input.
  int64_t start(int o) const { return static_cast<int64_t>(o) * stride - before; }
};

/// Axes from the slowest to the fastest; fewer than three stand last.
struct ConvolutionPlan {
  static constexpr int kAxes = 3;
  int images = 1;
  ConvolutionAxis axis[kAxes];
  int inputs = 1, outputs = 1;  // channels of all groups
  int groups = 1;
  Precision precision = Precision::high;
  Activation activation = Activation::none;

  int taps() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
  int64_t input_positions() const { return static_cast<int64_t>(axis[0].in) * axis[1].in * axis[2].in; }
  int64_t output_positions() const {  // of an image
    return static_cast<int64_t>(axis[0].out) * axis[1].out * axis[2].out;
  }
};

/// Windows of one group as rows of a product, [taps, inputs / groups] each.
class Windows final : public RowSource {
 public:
  Windows(const ConvolutionPlan& plan, const float* x, int group);
  const float* row(int index, float* room) const override;

 private:
  const ConvolutionPlan& plan_;
  const float* const x_;
  const int first_, width_;  // channels
  bool whole_;               // a window that is all inside lies in one piece
};

/// x [images, positions, inputs] -> out [images, positions, outputs], a matrix a group; bias [outputs] or
/// null.
void convolve_by_products(const ConvolutionPlan& plan, std::span<const Matrix> groups, const float* x,
                          const float* bias, float* out);

/// One input channel a group. taps [blocks of kDepthwiseBlock outputs][taps][kDepthwiseBlock], zeros behind
/// the last output.
void convolve_depthwise(const ConvolutionPlan& plan, const float* taps, const float* x, const float* bias,
                        float* out);

}  // namespace mlxcel::kernels
