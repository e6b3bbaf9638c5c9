#include "nn/glu_rows.h"

#include <vector>

#include "kernels/isa/rowwise.h"

namespace mlxcel {

namespace {

// Not a number stays what it is, as in MLX's minimum and maximum.
float at_most(float x, float limit) { return x != x || x < limit ? x : limit; }
float at_least(float x, float limit) { return x != x || x > limit ? x : limit; }

void bent_row(const float* x, float by, int width, float* out) {
  const float inverse = 1.0f / by;
  for (int i = 0; i < width; ++i) out[i] = x[i] * inverse;
  active_row(out, Activation::tanh, width, out);
  for (int i = 0; i < width; ++i) out[i] *= by;
}

}  // namespace

void active_row(const float* x, Activation activation, int width, float* out) {
  kernels::rowwise_bodies().activate(x, static_cast<int>(activation), static_cast<size_t>(width), out);
}

void clamped_row(const ClampedGlu& glu, const float* gate, const float* up, int width, float* out) {
  static thread_local std::vector<float> memory;
  memory.resize(static_cast<size_t>(width));
  float* const other = memory.data();
  if (glu.bend > 0.0f) {
    bent_row(gate, glu.bend, width, out);
    active_row(gate, Activation::sigmoid, width, other);
    for (int i = 0; i < width; ++i) out[i] *= other[i];
    if (glu.up_bend > 0.0f) bent_row(up, glu.up_bend, width, other);
    const float* const by = glu.up_bend > 0.0f ? other : up;
    for (int i = 0; i < width; ++i) out[i] *= by[i];
    return;
  }
  const auto bounded = [&](int i) {
    const float x = at_most(at_least(up[i], -glu.limit), glu.limit);
    return glu.offset == 0.0f ? x : x + glu.offset;
  };
  if (glu.after) {
    active_row(gate, Activation::silu, width, out);
    for (int i = 0; i < width; ++i) out[i] = at_most(out[i], glu.limit) * bounded(i);
    return;
  }
  for (int i = 0; i < width; ++i) other[i] = at_most(gate[i], glu.limit);
  if (glu.alpha == 1.0f) {
    active_row(other, Activation::silu, width, out);
    for (int i = 0; i < width; ++i) out[i] *= bounded(i);
    return;
  }
  for (int i = 0; i < width; ++i) out[i] = other[i] * glu.alpha;
  active_row(out, Activation::sigmoid, width, out);
  for (int i = 0; i < width; ++i) out[i] = other[i] * out[i] * bounded(i);
}

}  // namespace mlxcel
