#include "nn/streams.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/primitive.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

constexpr int kAtOnce = 8;  // tokens of a worker's task

/// body(token) for each.
template <class Body>
void each_token(int tokens, const Body& body) {
  const auto run = [&](int begin, int end) {
    for (int t = begin; t < end; ++t) body(static_cast<ptrdiff_t>(t));
  };
  if (tokens < 2 * kAtOnce) return run(0, tokens);
  WorkerPool::shared().each(tokens, kAtOnce, run);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// One matrix [n, n] of logits to one whose rows and columns add up to one.
void balance(float* m, int n, int rounds, float eps) {
  for (int i = 0; i < n; ++i) {
    float* const row = m + i * n;
    const float top = *std::max_element(row, row + n);
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += row[j] = std::exp(row[j] - top);
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + eps;
  }
  const auto divide = [&](int stride, int step) {  // by the sums of lines whose entries lie `step` apart
    for (int line = 0; line < n; ++line) {
      float sum = eps;
      for (int k = 0; k < n; ++k) sum += m[line * stride + k * step];
      for (int k = 0; k < n; ++k) m[line * stride + k * step] /= sum;
    }
  };
  divide(1, n);
  for (int round = 1; round < rounds; ++round) {
    divide(n, 1);
    divide(1, n);
  }
}

array part(const array& x, int from, int width) {
  return mx::slice(x, {0, from}, {x.shape(0), from + width});
}

/// logits [tokens, (2 + n) n], raw -> the same with the weights of reading, of writing and of mixing.
array weights_of(const array& logits, const array& base, const array& scale, const StreamOptions& o) {
  const int n = o.count, tokens = logits.shape(0), rounds = fault("streams not balanced") ? 1 : o.rounds;
  if (kernel_mode() == KernelMode::reference) {
    const auto line = [&](int from, int width, int kind) {
      const array factor = mx::slice(scale, {kind}, {kind + 1});
      return mx::add(mx::multiply(part(logits, from, width), factor),
                     mx::slice(base, {from}, {from + width}));
    };
    const array read = mx::add(mx::sigmoid(line(0, n, 0)), array(o.eps));
    const array write = mx::multiply(mx::sigmoid(line(n, n, 1)), array(2.0f));
    array mix = mx::add(mx::softmax(mx::reshape(line(2 * n, n * n, 2), {tokens, n, n}), -1), array(o.eps));
    const auto divide = [&](int axis) {
      mix = mx::divide(mix, mx::add(mx::sum(mix, axis, true), array(o.eps)));
    };
    divide(1);
    for (int round = 1; round < rounds; ++round) {
      divide(2);
      divide(1);
    }
    return mx::concatenate({read, write, mx::reshape(mix, {tokens, n * n})}, 1);
  }
  return kernels::native_op("stream_weights", logits.shape(), mx::float32, {logits, base, scale},
                            [tokens, n, rounds, eps = o.eps](const kernels::Buffers& b) {
                              const int width = (2 + n) * n;
                              const float* const base_of = b.input<float>(1);
                              const float* const factor = b.input<float>(2);
                              each_token(tokens, [&](ptrdiff_t t) {
                                const float* const in = b.input<float>(0) + t * width;
                                float* const out = b.output<float>() + t * width;
                                for (int i = 0; i < width; ++i)
                                  out[i] = in[i] * factor[i < n ? 0 : i < 2 * n ? 1 : 2] + base_of[i];
                                for (int i = 0; i < n; ++i) {
                                  out[i] = sigmoid(out[i]) + eps;
                                  out[n + i] = 2.0f * sigmoid(out[n + i]);
                                }
                                balance(out + 2 * n, n, rounds, eps);
                              });
                            });
}

/// sum over streams of weight * stream: streams [tokens, n * hidden], weights [tokens, >= n].
array weighed(const array& streams, const array& weights, int n, int hidden) {
  array sum = mx::multiply(part(streams, 0, hidden), part(weights, 0, 1));
  for (int i = 1; i < n; ++i)
    sum = mx::add(sum, mx::multiply(part(streams, i * hidden, hidden), part(weights, i, 1)));
  return sum;
}

/// Stream k: write[k] * given + sum over j of mix[j, k] * stream j.
array dealt(const array& streams, const array& given, const array& weights, const StreamOptions& o) {
  const int n = o.count, hidden = o.hidden, tokens = given.shape(0);
  if (kernel_mode() == KernelMode::reference) {
    const array mix = mx::reshape(part(weights, 2 * n, n * n), {tokens, n, n});
    const array kept = mx::matmul(mx::swapaxes(mix, 1, 2), mx::reshape(streams, {tokens, n, hidden}));
    const array write = mx::expand_dims(part(weights, n, n), 2);
    return mx::reshape(mx::add(kept, mx::multiply(write, mx::expand_dims(given, 1))), {tokens, n * hidden});
  }
  return kernels::native_op("streams_dealt", {tokens, n * hidden}, mx::float32, {streams, given, weights},
                            [tokens, n, hidden](const kernels::Buffers& b) {
                              each_token(tokens, [&](ptrdiff_t t) {
                                const float* const in = b.input<float>(0) + t * n * hidden;
                                const float* const own = b.input<float>(1) + t * hidden;
                                const float* const weight = b.input<float>(2) + t * (2 + n) * n;
                                float* const out = b.output<float>() + t * n * hidden;
                                for (int k = 0; k < n; ++k) {
                                  float* const to = out + static_cast<ptrdiff_t>(k) * hidden;
                                  for (int d = 0; d < hidden; ++d) to[d] = weight[n + k] * own[d];
                                  for (int j = 0; j < n; ++j) {
                                    const float share = weight[2 * n + j * n + k];
                                    const float* const from = in + static_cast<ptrdiff_t>(j) * hidden;
                                    for (int d = 0; d < hidden; ++d) to[d] += share * from[d];
                                  }
                                }
                              });
                            });
}

}  // namespace

array spread_streams(const array& x, int count) {
  return mx::concatenate(std::vector<array>(static_cast<size_t>(count), x), 1);
}

StreamMix::StreamMix(const Weights& w, const StreamOptions& options)
    : o_(options),
      fn_(w.linear("fn", (2 + o_.count) * o_.count, o_.count * o_.hidden, Bias::none)),
      base_(w.tensor("base", {(2 + o_.count) * o_.count})),
      scale_(w.tensor("scale", {3})) {}

array StreamMix::operator()(const array& streams, const std::function<array(const array&)>& sublayer) const {
  const array logits = fn_(kernels::rms_norm(streams, std::nullopt, o_.norm_eps));
  const array weights = weights_of(logits, base_, scale_, o_);
  const array given = sublayer(weighed(streams, weights, o_.count, o_.hidden));
  return dealt(streams, given, weights, o_);
}

StreamSum::StreamSum(const Weights& w, const StreamOptions& options)
    : o_(options),
      fn_(w.linear("hc_fn", o_.count, o_.count * o_.hidden, Bias::none)),
      base_(w.tensor("hc_base", {o_.count})),
      scale_(w.tensor("hc_scale", {1})) {}

array StreamSum::operator()(const array& streams) const {
  const array logits = fn_(kernels::rms_norm(streams, std::nullopt, o_.norm_eps));
  const array lines = mx::add(mx::multiply(logits, scale_), base_);
  const array weights = mx::add(kernels::activate(lines, Activation::sigmoid), array(o_.eps));
  return weighed(streams, weights, o_.count, o_.hidden);
}

}  // namespace mlxcel
