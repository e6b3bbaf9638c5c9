#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/isa/neon.h"
#include "kernels/isa/rowwise.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {

const RowwiseBodies& rowwise_bodies() {
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return rowwise_avx2();
    case Isa::avx512:
      return rowwise_avx512();
#elif defined(__aarch64__)
    case Isa::neon:
    case Isa::i8mm:
      return rowwise_neon();
#endif
    default:
      return rowwise_generic();
  }
}

namespace {

const RowwiseBodies& bodies() { return rowwise_bodies(); }

// Below this many values a second worker costs more than it brings.
constexpr size_t kParallel = 16384;

/// visit(begin, end) over [0, count) items of `each` values, on the pool when it is worth it.
template <class Visit>
void over(int count, size_t each, const Visit& visit) {
  if (static_cast<size_t>(count) * each < kParallel) return visit(0, count);
  auto& pool = WorkerPool::shared();
  pool.each(count, std::max(1, count / (4 * pool.width())), visit);
}

array as(const array& a, mx::Dtype dtype) { return a.dtype() == dtype ? a : mx::astype(a, dtype); }

int width_of(const char* what, const array& x) {
  if (x.ndim() == 0 || x.shape(-1) == 0)
    fail(ErrorKind::internal, "{}: expected rows of values, got {}", what, to_string(x.shape()));
  return x.shape(-1);
}

int rows_of(const array& x) { return static_cast<int>(x.size() / static_cast<size_t>(x.shape(-1))); }

void check_vector(const char* what, const std::optional<array>& v, int width) {
  if (v && (v->ndim() != 1 || v->shape(0) != width))
    fail(ErrorKind::internal, "{}: expected [{}], got {}", what, width, to_string(v->shape()));
}

/// Cosines and sines of a step's positions; every layer of a step asks for the same ones.
struct Angles {
  std::vector<int> positions;
  std::vector<float> frequencies, cosines, sines;
  float scale = 0.0f;
};

const Angles& angles_of(const int* positions, size_t tokens, const float* frequencies, size_t half,
                        float scale) {
  static thread_local std::vector<Angles> recent;
  static thread_local size_t next = 0;
  for (const Angles& a : recent)
    if (a.scale == scale && a.positions.size() == tokens && a.frequencies.size() == half &&
        std::memcmp(a.positions.data(), positions, tokens * sizeof(int)) == 0 &&
        std::memcmp(a.frequencies.data(), frequencies, half * sizeof(float)) == 0)
      return a;
  // Local and global frequencies in turn, and room for a second model.
  constexpr size_t kKept = 4;
  if (recent.size() < kKept) recent.emplace_back();
  Angles& a = recent[next++ % kKept % recent.size()];
  a.scale = scale;
  a.positions.assign(positions, positions + tokens);
  a.frequencies.assign(frequencies, frequencies + half);
  a.cosines.resize(tokens * half);
  a.sines.resize(tokens * half);
  over(static_cast<int>(tokens), half * 8, [&](int begin, int end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t)
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[t]) * frequencies[i];
        a.cosines[t * half + i] = std::cos(angle) * scale;
        a.sines[t * half + i] = std::sin(angle) * scale;
      }
  });
  return a;
}

array activate_reference(const array& x, Activation activation) {
  using mx::multiply;
  const auto scalar = [&](double v) { return array(static_cast<float>(v), x.dtype()); };
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::silu:
      return multiply(x, mx::sigmoid(x));
    case Activation::gelu:
      return multiply(multiply(x, scalar(0.5)),
                      mx::add(scalar(1), mx::erf(multiply(x, scalar(1 / std::numbers::sqrt2)))));
    case Activation::gelu_tanh: {
      const array inner = multiply(scalar(std::sqrt(2 / std::numbers::pi)),
                                   mx::add(x, multiply(scalar(0.044715), multiply(x, multiply(x, x)))));
      return multiply(multiply(x, scalar(0.5)), mx::add(scalar(1), mx::tanh(inner)));
    }
    case Activation::relu:
      return mx::maximum(x, scalar(0));
    case Activation::relu2:
      return mx::square(mx::maximum(x, scalar(0)));
    case Activation::sigmoid:
      return mx::sigmoid(x);
    case Activation::tanh:
      return mx::tanh(x);
    case Activation::softplus:
      return mx::logaddexp(x, scalar(0));
    case Activation::exp:
      return mx::exp(x);
  }
  fail(ErrorKind::internal, "activation {} is unknown", static_cast<int>(activation));
}

}  // namespace

array rms_norm(const array& x, const std::optional<array>& weight, float eps, float offset) {
  const int width = width_of("rms_norm", x);
  check_vector("rms_norm: weight", weight, width);
  if (kernel_mode() == KernelMode::reference) {
    const array wide = as(x, mx::float32);
    array y = mx::multiply(wide, mx::rsqrt(mx::add(mx::mean(mx::square(wide), -1, true), array(eps))));
    if (weight)
      y = mx::multiply(
          y, offset == 0.0f ? as(*weight, mx::float32) : mx::add(as(*weight, mx::float32), array(offset)));
    else if (offset != 0.0f)
      y = mx::multiply(y, array(1.0f + offset));
    return as(y, x.dtype());
  }
  std::vector<array> inputs{as(x, mx::float32)};
  if (weight) inputs.push_back(as(*weight, mx::float32));
  const int tokens = x.ndim() == 1 ? 1 : x.shape(0);
  return native_op(
      "rms_norm", x.shape(), mx::float32, std::move(inputs),
      [body = bodies().rms_norm, eps, offset, tokens, each = rows_of(x) / std::max(1, tokens), width,
       weighted = weight.has_value()](const Buffers& b) {
        const auto row = static_cast<ptrdiff_t>(each) * width;
        const float* const w = weighted ? b.input<float>(1) : nullptr;
        over(tokens, static_cast<size_t>(row), [&](int begin, int end) {
          for (ptrdiff_t t = begin; t < end; ++t)
            body(b.input<float>(0) + t * b.stride[0], w, eps, offset, each, width,
                 b.output<float>() + t * row);
        });
      },
      1u);
}

array layer_norm(const array& x, const std::optional<array>& weight, const std::optional<array>& bias,
                 float eps) {
  const int width = width_of("layer_norm", x);
  check_vector("layer_norm: weight", weight, width);
  check_vector("layer_norm: bias", bias, width);
  if (kernel_mode() == KernelMode::reference) {
    const array wide = as(x, mx::float32);
    const array centred = mx::subtract(wide, mx::mean(wide, -1, true));
    array y = mx::multiply(centred, mx::rsqrt(mx::add(mx::mean(mx::square(centred), -1, true), array(eps))));
    if (weight) y = mx::multiply(y, as(*weight, mx::float32));
    if (bias) y = mx::add(y, as(*bias, mx::float32));
    return as(y, x.dtype());
  }
  std::vector<array> inputs{as(x, mx::float32)};
  if (weight) inputs.push_back(as(*weight, mx::float32));
  if (bias) inputs.push_back(as(*bias, mx::float32));
  return native_op("layer_norm", x.shape(), mx::float32, std::move(inputs),
                   [body = bodies().layer_norm, eps, rows = rows_of(x), width, weighted = weight.has_value(),
                    biased = bias.has_value()](const Buffers& b) {
                     over(rows, static_cast<size_t>(width), [&](int begin, int end) {
                       const ptrdiff_t at = static_cast<ptrdiff_t>(begin) * width;
                       body(b.input<float>(0) + at, weighted ? b.input<float>(1) : nullptr,
                            biased ? b.input<float>(weighted ? 2 : 1) : nullptr, eps, end - begin, width,
                            b.output<float>() + at);
                     });
                   });
}

array rope(const array& x, const array& positions, const array& frequencies, bool interleaved, float scale) {
  if (x.ndim() != 3)
    fail(ErrorKind::internal, "rope: expected x [tokens, heads, head_dim], got {}", to_string(x.shape()));
  const int tokens = x.shape(0), heads = x.shape(1), head_dim = x.shape(2);
  if (positions.shape() != Shape{tokens})
    fail(ErrorKind::internal, "rope: expected positions [{}], got {}", tokens, to_string(positions.shape()));
  if (frequencies.ndim() != 1 || 2 * frequencies.shape(0) > head_dim)
    fail(ErrorKind::internal, "rope: expected at most {} frequencies, got {}", head_dim / 2,
         to_string(frequencies.shape()));
  const int half = frequencies.shape(0);
  if (kernel_mode() == KernelMode::reference) {
    const array angle = mx::expand_dims(
        mx::multiply(mx::expand_dims(as(positions, mx::float32), 1), as(frequencies, mx::float32)), 1);
    const array c = mx::multiply(mx::cos(angle), array(scale)),
                s = mx::multiply(mx::sin(angle), array(scale));
    const array wide = as(x, mx::float32);
    const auto part = [&](int from, int to, int step) {
      return mx::slice(wide, {0, 0, from}, {tokens, heads, to}, {1, 1, step});
    };
    const array a = interleaved ? part(0, 2 * half, 2) : part(0, half, 1);
    const array b = interleaved ? part(1, 2 * half, 2) : part(half, 2 * half, 1);
    const array first = mx::subtract(mx::multiply(a, c), mx::multiply(b, s));
    const array second = mx::add(mx::multiply(b, c), mx::multiply(a, s));
    array turned = interleaved ? mx::reshape(mx::stack({first, second}, -1), {tokens, heads, 2 * half})
                               : mx::concatenate({first, second}, 2);
    if (2 * half < head_dim) turned = mx::concatenate({turned, part(2 * half, head_dim, 1)}, 2);
    return as(turned, x.dtype());
  }
  return native_op(
      "rope", x.shape(), mx::float32,
      {as(x, mx::float32), as(positions, mx::int32), as(frequencies, mx::float32)},
      [body = bodies().rope, tokens, heads, head_dim, half, interleaved, scale](const Buffers& b) {
        const Angles& angles = angles_of(b.input<int>(1), static_cast<size_t>(tokens), b.input<float>(2),
                                         static_cast<size_t>(half), scale);
        over(tokens, static_cast<size_t>(heads) * static_cast<size_t>(head_dim), [&](int begin, int end) {
          for (int t = begin; t < end; ++t) {
            const ptrdiff_t at = static_cast<ptrdiff_t>(t) * heads * head_dim,
                            row = static_cast<ptrdiff_t>(t) * half;
            body(b.input<float>(0) + t * b.stride[0], angles.cosines.data() + row, angles.sines.data() + row,
                 heads, head_dim, half, interleaved, b.output<float>() + at);
          }
        });
      },
      1u);
}

array activate(const array& x, Activation activation) {
  if (activation == Activation::none) return x;
  if (kernel_mode() == KernelMode::reference) return activate_reference(x, activation);
  return native_op("activate", x.shape(), mx::float32, {as(x, mx::float32)},
                   [body = bodies().activate, activation, count = x.size()](const Buffers& b) {
                     constexpr size_t kPiece = 1024;
                     over(static_cast<int>((count + kPiece - 1) / kPiece), kPiece, [&](int begin, int end) {
                       const size_t from = static_cast<size_t>(begin) * kPiece;
                       const size_t until = std::min(count, static_cast<size_t>(end) * kPiece);
                       body(b.input<float>(0) + from, static_cast<int>(activation), until - from,
                            b.output<float>() + from);
                     });
                   });
}

}  // namespace mlxcel::kernels
