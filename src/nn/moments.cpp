#include "nn/moments.h"

#include <cmath>

#include "base/worker_pool.h"
#include "kernels/primitive.h"

namespace mlxcel {

namespace {

void moments_of(const float* x, int width, float* out) {
  double sum = 0, squares = 0, spread = 0;
  for (int i = 0; i < width; ++i) {
    sum += static_cast<double>(x[i]);
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  const double mean = sum / width;
  for (int i = 0; i < width; ++i)
    spread += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  out[0] = static_cast<float>(mean);
  out[1] = static_cast<float>(std::sqrt(spread / width));
  out[2] = static_cast<float>(std::sqrt(squares / width));
}

array all_moments(const array& x) {
  const int tokens = x.shape(0), width = x.shape(1);
  if (kernel_mode() == KernelMode::reference)
    return mx::concatenate(
        {mx::mean(x, -1, true), mx::sqrt(mx::var(x, -1, true)), mx::sqrt(mx::mean(mx::square(x), -1, true))},
        1);
  return kernels::native_op("row_moments", {tokens, 3}, mx::float32, {mx::astype(x, mx::float32)},
                            [=](const kernels::Buffers& b) {
                              const auto fill = [&](int begin, int end) {
                                for (ptrdiff_t t = begin; t < end; ++t)
                                  moments_of(b.input<float>(0) + t * width, width, b.output<float>() + t * 3);
                              };
                              if (tokens < 16) return fill(0, tokens);
                              WorkerPool::shared().run([&](int worker, int count) {
                                const auto [begin, end] = share(tokens, worker, count);
                                fill(begin, end);
                              });
                            });
}

}  // namespace

Moments row_moments(const array& x) {
  const array all = all_moments(x);
  const auto column = [&](int i) { return mx::slice(all, {0, i}, {x.shape(0), i + 1}); };
  return {column(0), column(1), column(2)};
}

array row_sums(const array& x) {
  if (kernel_mode() == KernelMode::reference) return mx::sum(x, -1, true);
  Shape shape = x.shape();
  const int width = shape.back(), rows = static_cast<int>(x.size() / static_cast<size_t>(width));
  shape.back() = 1;
  return kernels::native_op("row_sums", shape, mx::float32, {mx::astype(x, mx::float32)},
                            [=](const kernels::Buffers& b) {
                              for (ptrdiff_t r = 0; r < rows; ++r) {
                                double sum = 0;
                                for (int i = 0; i < width; ++i)
                                  sum += static_cast<double>(b.input<float>(0)[r * width + i]);
                                b.output<float>()[r] = static_cast<float>(sum);
                              }
                            });
}

double normal_quantile(double probability) {
  double low = -40.0, high = 40.0;
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace mlxcel
