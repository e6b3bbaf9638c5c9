// Norms, rope and activations over the vector words of whichever tier was included before. A row's sums run
// over its width in one fixed order, and its tail goes through the same vector instructions.
#pragma once

#include "kernels/isa/rowwise.h"

namespace {

/// Sum over a row of term(vector of x, lanes in use), in two interleaved accumulators.
template <class Term>
MLXCEL_INLINE float row_sum(const float* x, int width, const Term& term) {
  F even = zero(), odd = zero();
  int i = 0;
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    even = add(even, term(load(x + i), kLanes));
    odd = add(odd, term(load(x + i + kLanes), kLanes));
  }
  for (; i < width; i += kLanes) {
    const int n = width - i < kLanes ? width - i : kLanes;
    even = add(even, term(load_part(x + i, n), n));
  }
  return sum(add(even, odd));
}

/// out[i] = value(vector of x, i, lanes in use)
template <class Value>
MLXCEL_INLINE void row_map(const float* x, size_t width, float* out, const Value& value) {
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(out + i, value(load(x + i), i, kLanes));
  if (i < width) {
    const int n = static_cast<int>(width - i);
    store_part(out + i, value(load_part(x + i, n), i, n), n);
  }
}

void rms_norm(const float* x, const float* weight, float eps, float offset, int rows, int width, float* out) {
  for (int r = 0; r < rows; ++r, x += width, out += width) {
    const float squares = row_sum(x, width, [](F v, int) { return mul(v, v); });
    const F scale = set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + eps));
    row_map(x, static_cast<size_t>(width), out, [&](F v, size_t i, int n) {
      const F y = mul(v, scale);
      return weight ? mul(y, add(load_part(weight + i, n), set1(offset))) : mul(y, set1(1.0f + offset));
    });
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int rows, int width,
                float* out) {
  for (int r = 0; r < rows; ++r, x += width, out += width) {
    const float mean = row_sum(x, width, [](F v, int) { return v; }) / static_cast<float>(width);
    const F middle = set1(mean);
    const float squares = row_sum(x, width, [&](F v, int n) {
      const F d = sub(v, middle);
      // Lanes behind the row hold -mean here: they must not count.
      if (n < kLanes) {
        float lane[kLanes] = {};
        store_part(lane, d, n);
        const F kept = load(lane);
        return mul(kept, kept);
      }
      return mul(d, d);
    });
    const F scale = set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + eps));
    row_map(x, static_cast<size_t>(width), out, [&](F v, size_t i, int n) {
      F y = mul(sub(v, middle), scale);
      if (weight) y = mul(y, load_part(weight + i, n));
      if (bias) y = add(y, load_part(bias + i, n));
      return y;
    });
  }
}

void rope(const float* x, const float* cosines, const float* sines, int heads, int head_dim, int half,
          bool interleaved, float* out) {
  for (int h = 0; h < heads; ++h, x += head_dim, out += head_dim) {
    if (interleaved) {
      for (int i = 0; i < half; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        out[2 * i] = a * cosines[i] - b * sines[i];
        out[2 * i + 1] = b * cosines[i] + a * sines[i];
      }
    } else {
      for (int i = 0; i < half; i += kLanes) {
        const int n = half - i < kLanes ? half - i : kLanes;
        const F a = load_part(x + i, n), b = load_part(x + half + i, n);
        const F c = load_part(cosines + i, n), s = load_part(sines + i, n);
        store_part(out + i, sub(mul(a, c), mul(b, s)), n);
        store_part(out + half + i, add(mul(b, c), mul(a, s)), n);
      }
    }
    if (out != x)
      memcpy(out + 2 * half, x + 2 * half, sizeof(float) * static_cast<size_t>(head_dim - 2 * half));
  }
}

void activate(const float* x, int activation, size_t count, float* out) {
  row_map(x, count, out, [&](F v, size_t, int) { return activated(v, activation); });
}

void gate(const float* gates, const float* up, int activation, size_t count, float* out) {
  row_map(gates, count, out,
          [&](F v, size_t i, int n) { return mul(activated(v, activation), load_part(up + i, n)); });
}

constexpr mlxcel::kernels::RowwiseBodies kRowwise{
    .rms_norm = rms_norm, .layer_norm = layer_norm, .rope = rope, .activate = activate, .gate = gate};

}  // namespace
