#include "kernels/recurrent.h"

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/isa/dispatch.h"
#include "kernels/isa/neon.h"
#include "kernels/isa/recurrent.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
const RecurrentBodies& recurrent_bodies() {
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return recurrent_avx2();
    case Isa::avx512:
      return recurrent_avx512();
#elif defined(__aarch64__)
    case Isa::neon:
    case Isa::i8mm:
      return recurrent_neon();
#endif
    default:
      return recurrent_generic();
  }
}

namespace {

constexpr int kMostTaps = 16;
// Below this many multiply-adds a second worker costs more than it brings.
constexpr size_t kParallel = 32768;

/// task(0) .. task(count - 1), taken one by one by the pool's workers when the work is worth it.
template <class Task>
void each(int count, size_t work, const Task& task) {
  if (work < kParallel) {
    for (int i = 0; i < count; ++i) task(i);
    return;
  }
  WorkerPool::shared().each(count, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) task(i);
  });
}

void expect(const char* what, const array& x, const Shape& want) {
  if (x.shape() != want)
    fail(ErrorKind::internal, "{}: {}, expected {}", what, mlxcel::to_string(x.shape()),
         mlxcel::to_string(want));
}

void check_offsets(const char* what, const std::vector<int>& offsets, int tokens) {
  bool good = offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == tokens;
  for (size_t r = 0; good && r + 1 < offsets.size(); ++r) good = offsets[r] <= offsets[r + 1];
  if (!good)
    fail(ErrorKind::internal, "{}: {} row offsets do not cut {} tokens", what, offsets.size(), tokens);
}

array f32(const array& x) { return mx::astype(x, mx::float32); }

array rows(const array& x, int from, int to) {
  Shape start(x.ndim(), 0), stop = x.shape();
  start[0] = from;
  stop[0] = to;
  return mx::slice(x, start, stop);
}

std::pair<array, array> conv_reference(const array& x, const array& weight, const std::optional<array>& bias,
                                       const array& state, const std::vector<int>& offsets,
                                       Activation activation) {
  const int channels = x.shape(1), taps = weight.shape(1);
  std::vector<array> outs, states;
  for (int r = 0; r + 1 < static_cast<int>(offsets.size()); ++r) {
    const int from = offsets[static_cast<size_t>(r)], to = offsets[static_cast<size_t>(r) + 1],
              count = to - from;
    const array before = mx::reshape(rows(state, r, r + 1), {taps - 1, channels});
    const array all = mx::concatenate({before, rows(x, from, to)}, 0);
    states.push_back(mx::reshape(rows(all, count, count + taps - 1), {1, taps - 1, channels}));
    if (count == 0) continue;
    array y = bias ? mx::broadcast_to(*bias, {count, channels}) : mx::zeros({count, channels});
    for (int k = 0; k < taps; ++k)
      y = y +
          rows(all, k, k + count) * mx::reshape(mx::slice(weight, {0, k}, {channels, k + 1}), {1, channels});
    outs.push_back(y);
  }
  return {activate(mx::concatenate(outs, 0), activation), mx::concatenate(states, 0)};
}

std::pair<array, array> scan_reference(const array& x, const array& dt, const array& a, const array& b,
                                       const array& c, const array& d, const array& state,
                                       const std::vector<int>& offsets) {
  const int heads = x.shape(1), dim = x.shape(2), groups = b.shape(1), states = b.shape(2);
  const auto per_head = [&](const array& g, int t) {  // [1, groups, state_dim] -> [heads, 1, state_dim]
    return mx::reshape(mx::repeat(rows(g, t, t + 1), heads / groups, 1), {heads, 1, states});
  };
  std::vector<array> outs, ends;
  for (int r = 0; r + 1 < static_cast<int>(offsets.size()); ++r) {
    array h = mx::reshape(rows(state, r, r + 1), {heads, dim, states});
    for (int t = offsets[static_cast<size_t>(r)]; t < offsets[static_cast<size_t>(r) + 1]; ++t) {
      const array step = mx::reshape(rows(dt, t, t + 1), {heads, 1, 1});
      const array now = mx::reshape(rows(x, t, t + 1), {heads, dim, 1});
      h = h * mx::exp(step * mx::reshape(a, {heads, 1, 1})) + (step * now) * per_head(b, t);
      const array y = mx::sum(h * per_head(c, t), -1) + mx::reshape(d, {heads, 1}) * mx::squeeze(now, -1);
      outs.push_back(mx::reshape(y, {1, heads, dim}));
    }
    ends.push_back(mx::reshape(h, {1, heads, dim, states}));
  }
  return {mx::concatenate(outs, 0), mx::concatenate(ends, 0)};
}

std::pair<array, array> selective_reference(const array& x, const array& dt, const array& a, const array& b,
                                            const array& c, const array& d, const array& state,
                                            const std::vector<int>& offsets) {
  const int channels = x.shape(1), states = b.shape(1);
  std::vector<array> outs, ends;
  for (int r = 0; r + 1 < static_cast<int>(offsets.size()); ++r) {
    array h = mx::reshape(rows(state, r, r + 1), {channels, states});
    for (int t = offsets[static_cast<size_t>(r)]; t < offsets[static_cast<size_t>(r) + 1]; ++t) {
      const array step = mx::reshape(rows(dt, t, t + 1), {channels, 1});
      const array now = mx::reshape(rows(x, t, t + 1), {channels, 1});
      h = h * mx::exp(step * a) + (step * now) * rows(b, t, t + 1);
      outs.push_back(
          mx::reshape(mx::sum(h * rows(c, t, t + 1), -1) + d * mx::squeeze(now, -1), {1, channels}));
    }
    ends.push_back(mx::reshape(h, {1, channels, states}));
  }
  return {mx::concatenate(outs, 0), mx::concatenate(ends, 0)};
}

std::pair<array, array> delta_reference(const DeltaInputs& in, const array& state,
                                        const std::vector<int>& offsets) {
  const int heads = in.value.shape(1), dim = in.value.shape(2), columns = in.key.shape(2);
  const auto row = [&](const array& g, int t) {
    return mx::reshape(rows(f32(g), t, t + 1), {heads, 1, columns});
  };
  std::vector<array> outs, ends;
  for (int r = 0; r + 1 < static_cast<int>(offsets.size()); ++r) {
    array s = mx::reshape(rows(state, r, r + 1), {heads, dim, columns});
    for (int t = offsets[static_cast<size_t>(r)]; t < offsets[static_cast<size_t>(r) + 1]; ++t) {
      const array change = mx::sum(s * row(in.read, t), -1, true);
      const array fresh = mx::reshape(rows(f32(in.value), t, t + 1), {heads, dim, 1});
      s = s * row(in.decay, t) + change * row(in.write, t) + fresh * row(in.key, t);
      outs.push_back(mx::reshape(mx::sum(s * row(in.query, t), -1), {1, heads, dim}));
    }
    ends.push_back(mx::reshape(s, {1, heads, dim, columns}));
  }
  return {mx::concatenate(outs, 0), mx::concatenate(ends, 0)};
}

std::pair<array, array> sum_reference(const array& x, const array& decay, const array& state,
                                      const std::vector<int>& offsets) {
  std::vector<array> outs, ends;
  for (int r = 0; r + 1 < static_cast<int>(offsets.size()); ++r) {
    array h = rows(state, r, r + 1);
    for (int t = offsets[static_cast<size_t>(r)]; t < offsets[static_cast<size_t>(r) + 1]; ++t)
      outs.push_back(h = h * rows(decay, t, t + 1) + rows(x, t, t + 1));
    ends.push_back(h);
  }
  return {mx::concatenate(outs, 0), mx::concatenate(ends, 0)};
}

}  // namespace

std::pair<array, array> causal_conv(const array& x, const array& weight, const std::optional<array>& bias,
                                    const array& state, const std::vector<int>& offsets,
                                    Activation activation) {
  if (x.ndim() != 2 || weight.ndim() != 2 || weight.shape(1) < 1 || weight.shape(1) > kMostTaps)
    fail(ErrorKind::internal, "causal_conv: x {}, weight {}, expected [tokens, channels] and 1 to {} taps",
         mlxcel::to_string(x.shape()), mlxcel::to_string(weight.shape()), kMostTaps);
  const int tokens = x.shape(0), channels = x.shape(1), taps = weight.shape(1);
  check_offsets("causal_conv", offsets, tokens);
  const int count = static_cast<int>(offsets.size()) - 1;
  expect("causal_conv: weight", weight, {channels, taps});
  expect("causal_conv: state", state, {count, taps - 1, channels});
  if (bias) expect("causal_conv: bias", *bias, {channels});
  if (tokens == 0) return {x, state};
  if (kernel_mode() == KernelMode::reference)
    return conv_reference(f32(x), f32(weight), bias, f32(state), offsets, activation);
  std::vector<array> inputs{f32(x), f32(weight), f32(state)};
  if (bias) inputs.push_back(f32(*bias));
  const bool biased = bias.has_value();
  auto outs = native_ops(
      "causal_conv", {x.shape(), state.shape()}, {mx::float32, mx::float32}, inputs,
      [body = recurrent_bodies().conv, offsets, tokens, channels, taps, biased, activation,
       count](const Buffers& buffers) {
        const int blocks = (channels + kConvBlock - 1) / kConvBlock;
        const size_t width = static_cast<size_t>(channels), held = static_cast<size_t>(taps - 1) * width;
        each(count * blocks, static_cast<size_t>(tokens) * width * static_cast<size_t>(taps), [&](int i) {
          const auto r = static_cast<size_t>(i / blocks);
          const size_t at = static_cast<size_t>(offsets[r]) * width;
          body({.x = buffers.input<float>(0) + at,
                .weight = buffers.input<float>(1),
                .bias = biased ? buffers.input<float>(3) : nullptr,
                .before = buffers.input<float>(2) + r * held,
                .out = buffers.output<float>(0) + at,
                .after = buffers.output<float>(1) + r * held,
                .count = offsets[r + 1] - offsets[r],
                .channels = channels,
                .taps = taps,
                .activation = static_cast<int>(activation)},
               i % blocks);
        });
      });
  return {outs[0], outs[1]};
}

std::pair<array, array> ssm_scan(const array& x, const array& dt, const array& a, const array& b,
                                 const array& c, const array& d, const array& state,
                                 const std::vector<int>& offsets) {
  if (x.ndim() != 3 || b.ndim() != 3 || b.shape(1) < 1 || x.shape(1) % b.shape(1) != 0)
    fail(ErrorKind::internal,
         "ssm_scan: x {}, b {}, expected [tokens, heads, head_dim] and groups that divide the heads",
         mlxcel::to_string(x.shape()), mlxcel::to_string(b.shape()));
  const int tokens = x.shape(0), heads = x.shape(1), dim = x.shape(2), groups = b.shape(1),
            states = b.shape(2);
  check_offsets("ssm_scan", offsets, tokens);
  const int count = static_cast<int>(offsets.size()) - 1;
  expect("ssm_scan: dt", dt, {tokens, heads});
  expect("ssm_scan: a", a, {heads});
  expect("ssm_scan: b", b, {tokens, groups, states});
  expect("ssm_scan: c", c, {tokens, groups, states});
  expect("ssm_scan: d", d, {heads});
  expect("ssm_scan: state", state, {count, heads, dim, states});
  if (tokens == 0) return {x, state};
  if (kernel_mode() == KernelMode::reference)
    return scan_reference(f32(x), f32(dt), f32(a), f32(b), f32(c), f32(d), f32(state), offsets);
  auto outs = native_ops("ssm_scan", {x.shape(), state.shape()}, {mx::float32, mx::float32},
                         {f32(x), f32(dt), f32(a), f32(b), f32(c), f32(d), f32(state)},
                         [body = recurrent_bodies().scan, offsets, tokens, heads, dim, groups, states,
                          count](const Buffers& buffers) {
                           const size_t inputs = static_cast<size_t>(heads) * static_cast<size_t>(dim);
                           const size_t shared = static_cast<size_t>(groups) * static_cast<size_t>(states);
                           const size_t held = inputs * static_cast<size_t>(states);
                           each(count * heads, static_cast<size_t>(tokens) * held, [&](int i) {
                             const auto r = static_cast<size_t>(i / heads);
                             const auto first = static_cast<size_t>(offsets[r]);
                             body({.x = buffers.input<float>(0) + first * inputs,
                                   .dt = buffers.input<float>(1) + first * static_cast<size_t>(heads),
                                   .a = buffers.input<float>(2),
                                   .b = buffers.input<float>(3) + first * shared,
                                   .c = buffers.input<float>(4) + first * shared,
                                   .d = buffers.input<float>(5),
                                   .before = buffers.input<float>(6) + r * held,
                                   .out = buffers.output<float>(0) + first * inputs,
                                   .after = buffers.output<float>(1) + r * held,
                                   .count = offsets[r + 1] - offsets[r],
                                   .heads = heads,
                                   .head_dim = dim,
                                   .groups = groups,
                                   .state_dim = states},
                                  i % heads);
                           });
                         });
  return {outs[0], outs[1]};
}

std::pair<array, array> selective_scan(const array& x, const array& dt, const array& a, const array& b,
                                       const array& c, const array& d, const array& state,
                                       const std::vector<int>& offsets) {
  if (x.ndim() != 2 || b.ndim() != 2)
    fail(ErrorKind::internal,
         "selective_scan: x {}, b {}, expected [tokens, channels] and [tokens, state_dim]",
         mlxcel::to_string(x.shape()), mlxcel::to_string(b.shape()));
  const int tokens = x.shape(0), channels = x.shape(1), states = b.shape(1);
  check_offsets("selective_scan", offsets, tokens);
  const int count = static_cast<int>(offsets.size()) - 1;
  expect("selective_scan: dt", dt, x.shape());
  expect("selective_scan: a", a, {channels, states});
  expect("selective_scan: b", b, {tokens, states});
  expect("selective_scan: c", c, {tokens, states});
  expect("selective_scan: d", d, {channels});
  expect("selective_scan: state", state, {count, channels, states});
  if (tokens == 0) return {x, state};
  if (kernel_mode() == KernelMode::reference)
    return selective_reference(f32(x), f32(dt), f32(a), f32(b), f32(c), f32(d), f32(state), offsets);
  auto outs = native_ops("selective_scan", {x.shape(), state.shape()}, {mx::float32, mx::float32},
                         {f32(x), f32(dt), f32(a), f32(b), f32(c), f32(d), f32(state)},
                         [body = recurrent_bodies().selective, offsets, tokens, channels, states,
                          count](const Buffers& buffers) {
                           const int blocks = (channels + kConvBlock - 1) / kConvBlock;
                           const size_t width = static_cast<size_t>(channels),
                                        held = width * static_cast<size_t>(states);
                           each(count * blocks, static_cast<size_t>(tokens) * held, [&](int i) {
                             const auto r = static_cast<size_t>(i / blocks);
                             const auto first = static_cast<size_t>(offsets[r]);
                             body({.x = buffers.input<float>(0) + first * width,
                                   .dt = buffers.input<float>(1) + first * width,
                                   .a = buffers.input<float>(2),
                                   .b = buffers.input<float>(3) + first * static_cast<size_t>(states),
                                   .c = buffers.input<float>(4) + first * static_cast<size_t>(states),
                                   .d = buffers.input<float>(5),
                                   .before = buffers.input<float>(6) + r * held,
                                   .out = buffers.output<float>(0) + first * width,
                                   .after = buffers.output<float>(1) + r * held,
                                   .count = offsets[r + 1] - offsets[r],
                                   .channels = channels,
                                   .state_dim = states},
                                  i % blocks);
                           });
                         });
  return {outs[0], outs[1]};
}

std::pair<array, array> delta_scan(const DeltaInputs& in, const array& state,
                                   const std::vector<int>& offsets) {
  if (in.value.ndim() != 3 || in.key.ndim() != 3)
    fail(ErrorKind::internal, "delta_scan: value {}, key {}, expected [tokens, heads, width] each",
         mlxcel::to_string(in.value.shape()), mlxcel::to_string(in.key.shape()));
  const int tokens = in.value.shape(0), heads = in.value.shape(1), dim = in.value.shape(2);
  const int columns = in.key.shape(2);
  check_offsets("delta_scan", offsets, tokens);
  const int count = static_cast<int>(offsets.size()) - 1;
  expect("delta_scan: decay", in.decay, {tokens, heads, columns});
  expect("delta_scan: read", in.read, {tokens, heads, columns});
  expect("delta_scan: write", in.write, {tokens, heads, columns});
  expect("delta_scan: key", in.key, {tokens, heads, columns});
  expect("delta_scan: query", in.query, {tokens, heads, columns});
  expect("delta_scan: state", state, {count, heads, dim, columns});
  if (tokens == 0) return {in.value, state};
  if (kernel_mode() == KernelMode::reference) return delta_reference(in, f32(state), offsets);
  auto outs = native_ops(
      "delta_scan", {in.value.shape(), state.shape()}, {mx::float32, mx::float32},
      {f32(in.decay), f32(in.read), f32(in.write), f32(in.key), f32(in.query), f32(in.value), f32(state)},
      [body = recurrent_bodies().delta, offsets, tokens, heads, dim, columns, count](const Buffers& buffers) {
        const size_t width = static_cast<size_t>(heads) * static_cast<size_t>(columns);
        const size_t values = static_cast<size_t>(heads) * static_cast<size_t>(dim);
        const size_t held = values * static_cast<size_t>(columns);
        each(count * heads, static_cast<size_t>(tokens) * held, [&](int i) {
          const auto r = static_cast<size_t>(i / heads);
          const auto first = static_cast<size_t>(offsets[r]);
          body({.decay = buffers.input<float>(0) + first * width,
                .read = buffers.input<float>(1) + first * width,
                .write = buffers.input<float>(2) + first * width,
                .key = buffers.input<float>(3) + first * width,
                .query = buffers.input<float>(4) + first * width,
                .value = buffers.input<float>(5) + first * values,
                .before = buffers.input<float>(6) + r * held,
                .out = buffers.output<float>(0) + first * values,
                .after = buffers.output<float>(1) + r * held,
                .count = offsets[r + 1] - offsets[r],
                .heads = heads,
                .key_dim = columns,
                .value_dim = dim},
               i % heads);
        });
      });
  return {outs[0], outs[1]};
}

std::pair<array, array> gated_sum(const array& x, const array& decay, const array& state,
                                  const std::vector<int>& offsets) {
  if (x.ndim() != 2)
    fail(ErrorKind::internal, "gated_sum: x {}, expected [tokens, channels]", mlxcel::to_string(x.shape()));
  const int tokens = x.shape(0), channels = x.shape(1);
  check_offsets("gated_sum", offsets, tokens);
  const int count = static_cast<int>(offsets.size()) - 1;
  expect("gated_sum: decay", decay, x.shape());
  expect("gated_sum: state", state, {count, channels});
  if (tokens == 0) return {x, state};
  if (kernel_mode() == KernelMode::reference) return sum_reference(f32(x), f32(decay), f32(state), offsets);
  auto outs = native_ops(
      "gated_sum", {x.shape(), state.shape()}, {mx::float32, mx::float32}, {f32(x), f32(decay), f32(state)},
      [body = recurrent_bodies().sum, offsets, tokens, channels, count](const Buffers& buffers) {
        const auto width = static_cast<size_t>(channels);
        each(count, static_cast<size_t>(tokens) * width, [&](int i) {
          const auto r = static_cast<size_t>(i);
          const size_t at = static_cast<size_t>(offsets[r]) * width;
          body({.x = buffers.input<float>(0) + at,
                .decay = buffers.input<float>(1) + at,
                .before = buffers.input<float>(2) + r * width,
                .out = buffers.output<float>(0) + at,
                .after = buffers.output<float>(1) + r * width,
                .count = offsets[r + 1] - offsets[r],
                .channels = channels});
        });
      });
  return {outs[0], outs[1]};
}

}  // namespace mlxcel::kernels
