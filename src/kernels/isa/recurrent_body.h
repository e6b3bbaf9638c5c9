// The recurrences over the vector words and vector_math.h of whichever tier was included before. Tokens in
// order, taps in order, states in one order of lanes: a chunk boundary changes no bit.
#pragma once

#include "kernels/isa/recurrent.h"

namespace {

void conv(const mlxcel::kernels::ConvRow& r, int block) {
  using mlxcel::kernels::kConvBlock;
  constexpr int kMostTaps = 16;  // checked by the caller
  const int first = block * kConvBlock;
  const int width = r.channels - first < kConvBlock ? r.channels - first : kConvBlock;
  const size_t channels = static_cast<size_t>(r.channels);
  float taps[kMostTaps][kConvBlock];  // the block's weights, tap by tap
  for (int c = 0; c < width; ++c)
    for (int k = 0; k < r.taps; ++k)
      taps[k][c] =
          r.weight[static_cast<size_t>(first + c) * static_cast<size_t>(r.taps) + static_cast<size_t>(k)];

  const size_t stride = r.x_stride ? static_cast<size_t>(r.x_stride) : channels;
  const int held = r.taps - 1;
  // The input at `t` tokens after the row's first; before it, what the state holds.
  const auto input = [&](int t) {
    return (t < 0 ? r.before + static_cast<size_t>(t + held) * channels
                  : r.x + static_cast<size_t>(t) * stride) +
           first;
  };
  for (int t = 0; t < r.count; ++t) {
    const float* from[kMostTaps];
    for (int k = 0; k < r.taps; ++k) from[k] = input(t - held + k);
    float* out = r.out + static_cast<size_t>(t) * channels + first;
    for (int c = 0; c < width; c += kLanes) {
      const int n = width - c < kLanes ? width - c : kLanes;
      F y = r.bias ? load_part(r.bias + first + c, n) : zero();
      for (int k = 0; k < r.taps; ++k) y = fma(load_part(taps[k] + c, n), load_part(from[k] + c, n), y);
      store_part(out + c, activated(y, r.activation), n);
    }
  }
  for (int k = 0; k < held; ++k)
    memcpy(r.after + static_cast<size_t>(k) * channels + first, input(r.count - held + k),
           static_cast<size_t>(width) * sizeof(float));
}

/// kRows rows of a head's state, one token further; y of each.
template <int kRows>
MLXCEL_INLINE void scan_rows(const float* before, float* after, const float* b, const float* c,
                             const float* x, F decay, float dt, float d, int states, float* y) {
  const size_t stride = static_cast<size_t>(states);
  F sums[kRows], drive[kRows];
  for (int p = 0; p < kRows; ++p) {
    sums[p] = zero();
    drive[p] = set1(dt * x[p]);
  }
  int n = 0;
  for (; n + kLanes <= states; n += kLanes) {
    const F bn = load(b + n), cn = load(c + n);
    for (int p = 0; p < kRows; ++p) {
      const size_t at = static_cast<size_t>(p) * stride + static_cast<size_t>(n);
      const F h = fma(load(before + at), decay, mul(drive[p], bn));
      store(after + at, h);
      sums[p] = fma(h, cn, sums[p]);
    }
  }
  if (n < states) {
    const int left = states - n;
    const F bn = load_part(b + n, left), cn = load_part(c + n, left);
    for (int p = 0; p < kRows; ++p) {
      const size_t at = static_cast<size_t>(p) * stride + static_cast<size_t>(n);
      const F h = fma(load_part(before + at, left), decay, mul(drive[p], bn));
      store_part(after + at, h, left);
      sums[p] = fma(h, cn, sums[p]);
    }
  }
  for (int p = 0; p < kRows; ++p) y[p] = sum(sums[p]) + d * x[p];
}

void scan(const mlxcel::kernels::ScanRow& r, int head) {
  const size_t heads = static_cast<size_t>(r.heads), dim = static_cast<size_t>(r.head_dim);
  const size_t states = static_cast<size_t>(r.state_dim), h = static_cast<size_t>(head);
  const size_t group = h / (heads / static_cast<size_t>(r.groups));
  const float* before = r.before + h * dim * states;
  float* const after = r.after + h * dim * states;
  for (size_t t = 0; t < static_cast<size_t>(r.count); ++t) {
    const float dt = r.dt[t * heads + h];
    const F decay = exponential(set1(dt * r.a[h]));
    const float* x = r.x + (t * heads + h) * dim;
    const float* b = r.b + (t * static_cast<size_t>(r.groups) + group) * states;
    const float* c = r.c + (t * static_cast<size_t>(r.groups) + group) * states;
    float* y = r.out + (t * heads + h) * dim;
    size_t p = 0;
    for (; p + 4 <= dim; p += 4)
      scan_rows<4>(before + p * states, after + p * states, b, c, x + p, decay, dt, r.d[h], r.state_dim,
                   y + p);
    for (; p < dim; ++p)
      scan_rows<1>(before + p * states, after + p * states, b, c, x + p, decay, dt, r.d[h], r.state_dim,
                   y + p);
    before = after;
  }
  if (r.count == 0) memcpy(after, before, dim * states * sizeof(float));
}

void selective(const mlxcel::kernels::SelectiveRow& r, int block) {
  using mlxcel::kernels::kConvBlock;
  const size_t channels = static_cast<size_t>(r.channels), states = static_cast<size_t>(r.state_dim);
  const size_t first = static_cast<size_t>(block) * kConvBlock;
  const size_t last = channels - first < kConvBlock ? channels : first + kConvBlock;
  if (r.count == 0)
    memcpy(r.after + first * states, r.before + first * states, (last - first) * states * sizeof(float));
  for (size_t t = 0; t < static_cast<size_t>(r.count); ++t) {
    const float* const held = t == 0 ? r.before : r.after;
    const float *b = r.b + t * states, *c = r.c + t * states;
    for (size_t ch = first; ch < last; ++ch) {
      const float dt = r.dt[t * channels + ch], x = r.x[t * channels + ch];
      const F step = set1(dt), drive = set1(dt * x);
      F total = zero();
      for (size_t n = 0; n < states; n += kLanes) {
        const int left = states - n < kLanes ? static_cast<int>(states - n) : kLanes;
        const size_t at = ch * states + n;
        const F decay = exponential(mul(step, load_part(r.a + at, left)));
        const F h = fma(load_part(held + at, left), decay, mul(drive, load_part(b + n, left)));
        store_part(r.after + at, h, left);
        total = fma(h, load_part(c + n, left), total);
      }
      r.out[t * channels + ch] = sum(total) + r.d[ch] * x;
    }
  }
}

/// kRows rows of a head's matrix, one token further; y of each. The columns of a tail are zeros.
template <int kRows>
MLXCEL_INLINE void delta_rows(const float* before, float* after, const float* decay, const float* read,
                              const float* write, const float* key, const float* query, const float* value,
                              int columns, float* y) {
  const size_t stride = static_cast<size_t>(columns);
  F totals[kRows];
  for (int p = 0; p < kRows; ++p) totals[p] = zero();
  for (int n = 0; n < columns; n += kLanes) {
    const int left = columns - n < kLanes ? columns - n : kLanes;
    const F by = load_part(read + n, left);
    for (int p = 0; p < kRows; ++p)
      totals[p] = fma(load_part(before + static_cast<size_t>(p) * stride + static_cast<size_t>(n), left), by,
                      totals[p]);
  }
  F change[kRows], fresh[kRows];
  for (int p = 0; p < kRows; ++p) {
    change[p] = set1(sum(totals[p]));
    fresh[p] = set1(value[p]);
    totals[p] = zero();
  }
  for (int n = 0; n < columns; n += kLanes) {
    const int left = columns - n < kLanes ? columns - n : kLanes;
    const F d = load_part(decay + n, left), w = load_part(write + n, left), k = load_part(key + n, left);
    const F q = load_part(query + n, left);
    for (int p = 0; p < kRows; ++p) {
      const size_t at = static_cast<size_t>(p) * stride + static_cast<size_t>(n);
      const F s = fma(change[p], w, fma(fresh[p], k, mul(load_part(before + at, left), d)));
      store_part(after + at, s, left);
      totals[p] = fma(s, q, totals[p]);
    }
  }
  for (int p = 0; p < kRows; ++p) y[p] = sum(totals[p]);
}

void delta(const mlxcel::kernels::DeltaRow& r, int head) {
  const size_t heads = static_cast<size_t>(r.heads), columns = static_cast<size_t>(r.key_dim);
  const size_t dim = static_cast<size_t>(r.value_dim), h = static_cast<size_t>(head);
  const float* before = r.before + h * dim * columns;
  float* const after = r.after + h * dim * columns;
  if (r.count == 0) memcpy(after, before, dim * columns * sizeof(float));
  for (size_t t = 0; t < static_cast<size_t>(r.count); ++t) {
    const size_t at = (t * heads + h) * columns;
    const float* v = r.value + (t * heads + h) * dim;
    float* y = r.out + (t * heads + h) * dim;
    size_t p = 0;
    for (; p + 4 <= dim; p += 4)
      delta_rows<4>(before + p * columns, after + p * columns, r.decay + at, r.read + at, r.write + at,
                    r.key + at, r.query + at, v + p, r.key_dim, y + p);
    for (; p < dim; ++p)
      delta_rows<1>(before + p * columns, after + p * columns, r.decay + at, r.read + at, r.write + at,
                    r.key + at, r.query + at, v + p, r.key_dim, y + p);
    before = after;
  }
}

void gated_sum(const mlxcel::kernels::SumRow& r) {
  const size_t channels = static_cast<size_t>(r.channels);
  const float* held = r.before;
  for (size_t t = 0; t < static_cast<size_t>(r.count); ++t) {
    float* const out = r.out + t * channels;
    for (size_t c = 0; c < channels; c += kLanes) {
      const int left = channels - c < kLanes ? static_cast<int>(channels - c) : kLanes;
      const F h = fma(load_part(r.decay + t * channels + c, left), load_part(held + c, left),
                      load_part(r.x + t * channels + c, left));
      store_part(out + c, h, left);
    }
    held = out;
  }
  memcpy(r.after, held, channels * sizeof(float));
}

constexpr mlxcel::kernels::RecurrentBodies kRecurrent{
    .conv = conv, .scan = scan, .selective = selective, .delta = delta, .sum = gated_sum};

}  // namespace
