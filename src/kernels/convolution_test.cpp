// Convolutions against a loop in double precision, in every form, on every instruction set of this machine
// and as the twin; and against themselves in other company.
#include "kernels/convolution.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/isa/dispatch.h"

namespace mlxcel::kernels {
namespace {

using Form = ConvolutionForm;
using Floats = std::vector<float>;

array evaluated(array a) {
  a = mx::contiguous(a);
  mx::eval(a);
  return a;
}
Floats values(const array& a) {
  const array wide = evaluated(mx::astype(a, mx::float32));
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}
array normal(const Shape& shape, int seed) {
  return evaluated(
      mx::random::normal(shape, mx::float32, 0.0f, 1.0f, mx::random::key(static_cast<uint64_t>(seed))));
}
Weight dense(const Shape& shape, int seed, mx::Dtype dtype = mx::float32) {
  return {"conv.weight", shape,        evaluated(mx::astype(normal(shape, seed), dtype)),
          std::nullopt,  std::nullopt, std::nullopt};
}
Weight coded(const Shape& shape, int bits, int group, int seed) {
  const auto planes = mx::quantize(normal(shape, seed), group, bits);
  return {"conv.weight",        shape,
          evaluated(planes[0]), evaluated(planes[1]),
          evaluated(planes[2]), QuantFormat{QuantMode::affine, bits, group}};
}

int at(const std::vector<int>& numbers, size_t axis, int missing) {
  return numbers.empty() ? missing : numbers[axis];
}

/// What a convolution must give, and the sum of its terms' sizes, which bounds what rounding may do.
struct Expected {
  std::vector<double> value, size;
};

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::relu:
      return std::max(x, 0.0);
    default:
      return x;
  }
}

Expected oracle(const array& x, const Floats& w, const Shape& kernel, int outputs,
                const std::optional<array>& bias, const Form& form) {
  const auto axes = kernel.size();
  const Floats xs = values(x), bs = bias ? values(*bias) : Floats(static_cast<size_t>(outputs));
  const int inputs = x.shape(-1), each = inputs / form.groups, rows = outputs / form.groups;
  int in[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1}, d[3] = {1, 1, 1}, p[3] = {}, out[3];
  for (size_t a = 0; a < axes; ++a) {
    in[a] = x.shape(static_cast<int>(a) + 1);
    k[a] = kernel[a];
    s[a] = at(form.stride, a, 1);
    d[a] = at(form.dilation, a, 1);
    p[a] = at(form.before, a, 0);
  }
  for (size_t a = 0; a < 3; ++a)
    out[a] = (in[a] + p[a] + (a < axes ? at(form.after, a, 0) : 0) - (k[a] - 1) * d[a] - 1) / s[a] + 1;
  Expected e;
  for (int n = 0; n < x.shape(0); ++n)
    for (int z = 0; z < out[0]; ++z)
      for (int y = 0; y < out[1]; ++y)
        for (int u = 0; u < out[2]; ++u)
          for (int o = 0; o < outputs; ++o) {
            double sum = bs[static_cast<size_t>(o)], size = std::abs(sum);
            for (int i = 0; i < k[0]; ++i)
              for (int j = 0; j < k[1]; ++j)
                for (int l = 0; l < k[2]; ++l) {
                  const int zz = z * s[0] - p[0] + i * d[0], yy = y * s[1] - p[1] + j * d[1],
                            uu = u * s[2] - p[2] + l * d[2];
                  if (zz < 0 || zz >= in[0] || yy < 0 || yy >= in[1] || uu < 0 || uu >= in[2]) continue;
                  const auto from = static_cast<size_t>(
                      (((n * in[0] + zz) * in[1] + yy) * in[2] + uu) * inputs + o / rows * each);
                  const auto tap = static_cast<size_t>((((o * k[0] + i) * k[1] + j) * k[2] + l) * each);
                  for (size_t c = 0; c < static_cast<size_t>(each); ++c) {
                    const double term = static_cast<double>(xs[from + c]) * static_cast<double>(w[tap + c]);
                    sum += term;
                    size += std::abs(term);
                  }
                }
            e.value.push_back(activated(sum, form.activation));
            e.size.push_back(size);
          }
  return e;
}

void expect_close(const Floats& found, const Expected& want, double tolerance) {
  ASSERT_EQ(found.size(), want.value.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], want.value[i], tolerance * (want.size[i] + 1)) << "value " << i;
}
void expect_same(const Floats& found, const Floats& want) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(std::memcmp(&found[i], &want[i], sizeof(float)), 0)
        << "value " << i << ": " << found[i] << ", " << want[i];
}

class Convolutions : public ::testing::Test {
 protected:
  ~Convolutions() override {
    set_isa(isa_);
    set_kernel_mode(mode_);
    set_precision(precision_);
  }
  void on_each_body(const std::function<void()>& f) {
    set_kernel_mode(KernelMode::native);
    for (const Isa isa : available_isas()) {
      set_isa(isa);
      SCOPED_TRACE(kernels::to_string(isa));
      f();
    }
    set_isa(isa_);
  }
  void on_each(const std::function<void()>& f) {
    on_each_body(f);
    set_kernel_mode(KernelMode::reference);
    SCOPED_TRACE("reference");
    f();
    set_kernel_mode(KernelMode::native);
  }
  /// Every body and the twin against the loop.
  void check(const Shape& input, const Weight& weight, const Form& form, bool biased, int seed) {
    const array x = normal(input, seed);
    std::optional<array> bias;
    if (biased) bias = normal({weight.shape[0]}, seed + 1);
    const Shape kernel(weight.shape.begin() + 1, weight.shape.end() - 1);
    const Expected want = oracle(x, values(weight.data), kernel, weight.shape[0], bias, form);
    on_each([&] {
      const Convolution conv(weight, bias, form);
      const array y = conv(x);
      EXPECT_EQ(y.shape(), conv.output_shape(input));
      EXPECT_EQ(y.dtype(), mx::float32);
      expect_close(values(y), want, 2e-6);
    });
  }

 private:
  const Isa isa_ = isa();
  const KernelMode mode_ = kernel_mode();
  const Precision precision_ = precision();
};

TEST_F(Convolutions, AnyFormAgreesWithTheLoop) {
  std::mt19937 random(5);
  const auto draw = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  const mx::Dtype types[] = {mx::float32, mx::float16, mx::bfloat16};
  const Activation activations[] = {Activation::none, Activation::gelu, Activation::silu, Activation::relu};
  for (int round = 0; round < 160; ++round) {
    const int axes = draw(1, 3), groups = draw(0, 2) ? 1 : draw(2, 5), each = draw(0, 3) ? draw(1, 9) : 1;
    Form form{.groups = groups, .activation = activations[draw(0, 3)]};
    Shape input{draw(1, 3)}, weight{groups * draw(1, axes == 1 ? 20 : 7)};
    for (int a = 0; a < axes; ++a) {
      const int kernel = draw(1, axes == 1 ? 9 : 4), dilation = draw(0, 2) ? 1 : draw(2, 3);
      form.stride.push_back(draw(1, 3));
      form.dilation.push_back(dilation);
      form.before.push_back(draw(0, 4));
      form.after.push_back(draw(0, 4));
      weight.push_back(kernel);
      const int least = std::max(1, (kernel - 1) * dilation + 1 - form.before.back() - form.after.back());
      input.push_back(draw(least, least + (axes == 1 ? 60 : axes == 2 ? 12 : 4)));
    }
    input.push_back(groups * each);
    weight.push_back(each);
    SCOPED_TRACE("round " + std::to_string(round) + ", input " + mlxcel::to_string(input) + ", weight " +
                 mlxcel::to_string(weight) + ", groups " + std::to_string(groups));
    check(input, dense(weight, round, types[draw(0, 2)]), form, draw(0, 1) == 1, 1000 + round);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Convolutions, OfModelsAgreeWithTheLoop) {
  int seed = 100;
  // Statements, not a table: sanitizers take minutes to compile one of as many lists within lists.
  const auto agrees = [&](const char* name, const Shape& input, const Shape& weight, const Form& form) {
    if (HasFatalFailure()) return;
    SCOPED_TRACE(name);
    ++seed;
    check(input, dense(weight, seed), form, true, seed + 500);
  };
  agrees("whisper, first", {1, 60, 80}, {40, 3, 80},
         {.before = {1}, .after = {1}, .activation = Activation::gelu});
  agrees("whisper, second", {1, 60, 40}, {40, 3, 40}, {.stride = {2}, .before = {1}, .after = {1}});
  agrees("patches", {2, 28, 42, 3}, {70, 14, 14, 3}, {.stride = {14, 14}});
  agrees("patches of a film", {1, 4, 12, 12, 3}, {33, 2, 6, 6, 3}, {.stride = {2, 6, 6}});
  agrees("one by one", {2, 5, 7, 45}, {67, 1, 1, 45}, {});
  agrees("neck", {1, 11, 9, 32}, {64, 3, 3, 32}, {.before = {1, 1}, .after = {1, 1}});
  agrees("subsampling, first", {1, 33, 40, 1}, {65, 3, 3, 1},
         {.stride = {2, 2}, .before = {1, 1}, .after = {1, 1}});
  agrees("subsampling, depthwise", {1, 17, 20, 65}, {65, 3, 3, 1},
         {.stride = {2, 2}, .before = {1, 1}, .after = {1, 1}, .groups = 65});
  agrees("conformer", {1, 90, 70}, {70, 31, 1},
         {.before = {15}, .after = {15}, .groups = 70, .activation = Activation::silu});
  agrees("positions of wav2vec2", {1, 70, 48}, {48, 16, 12},
         {.before = {8}, .after = {8}, .groups = 4, .activation = Activation::gelu});
  agrees("codec, causal and dilated", {1, 100, 24}, {24, 3, 24},
         {.before = {18}, .after = {0}, .dilation = {9}});
  agrees("depthwise separable", {1, 20, 23, 40}, {40, 5, 5, 1},
         {.before = {2, 2}, .after = {2, 2}, .groups = 40});
  agrees("two outputs a channel", {2, 12, 13, 37}, {74, 3, 3, 1},
         {.before = {1, 0}, .after = {0, 1}, .groups = 37});
  agrees("three outputs a channel", {1, 50, 23}, {69, 5, 1}, {.stride = {2}, .groups = 23});
  agrees("depthwise, further apart than a tile", {1, 900, 5}, {5, 3, 1},
         {.before = {400}, .after = {7}, .dilation = {400}, .groups = 5});
  agrees("depthwise, wider than a tile", {1, 30, 33, 6}, {6, 12, 11, 1},
         {.stride = {1, 2}, .before = {20, 3}, .after = {5, 20}, .dilation = {3, 2}, .groups = 6});
  agrees("depthwise, three axes", {2, 6, 7, 8, 35}, {35, 3, 2, 3, 1},
         {.before = {2, 0, 1}, .after = {0, 1, 1}, .groups = 35});
  agrees("depthwise, three axes, further apart than a tile", {1, 60, 9, 8, 5}, {5, 2, 2, 2, 1},
         {.dilation = {50, 5, 5}, .groups = 5});
  agrees("more rows than a region", {1, 17000, 2}, {5, 3, 2}, {.before = {2}});
  agrees("only padding on one side", {1, 1, 9}, {11, 4, 9}, {.before = {9}, .after = {9}});
}

TEST_F(Convolutions, EveryPrecisionOfCodesAgreesWithTheLoop) {
  struct Case {
    Shape input, weight;
    int bits, group;
    Form form;
  };
  const Case cases[] = {
      {{2, 19, 64}, {45, 3, 64}, 4, 64, {.before = {1}, .after = {1}, .activation = Activation::silu}},
      {{1, 9, 11, 32}, {33, 3, 3, 32}, 8, 32, {.stride = {2, 1}, .before = {1, 1}, .after = {1, 1}}},
      {{1, 30, 128}, {20, 5, 64}, 6, 32, {.dilation = {2}, .groups = 2}},
  };
  for (const Case& c : cases) {
    const Weight weight = coded(c.weight, c.bits, c.group, 7);
    const array x = normal(c.input, 8), bias = normal({c.weight[0]}, 9);
    const Expected want = oracle(x, values(mx::reshape(dequantized(weight, mx::float32), c.weight)),
                                 Shape(c.weight.begin() + 1, c.weight.end() - 1), c.weight[0], bias, c.form);
    for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
      const double tolerance = precision == Precision::high   ? 2e-5
                               : precision == Precision::fast ? 4e-3
                                                              : 2e-6;
      set_precision(precision);
      SCOPED_TRACE(kernels::to_string(precision));
      on_each([&] { expect_close(values(Convolution(weight, bias, c.form)(x)), want, tolerance); });
      // Stored as rows whose groups do not know of taps.
      Weight flat = weight;
      const auto rows = [&](const array& plane) { return evaluated(mx::reshape(plane, {c.weight[0], -1})); };
      flat.data = rows(weight.data);
      flat.scales = rows(*weight.scales);
      flat.biases = rows(*weight.biases);
      on_each([&] {
        expect_same(values(Convolution(flat, bias, c.form)(x)), values(Convolution(weight, bias, c.form)(x)));
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(Convolutions, CompanyChangesNoBit) {
  struct Case {
    const char* name;
    Weight weight;
    int inputs;
    Form form;
  };
  const Case cases[] = {
      {"products", dense({43, 3, 3, 10}, 1, mx::bfloat16), 10, {.before = {1, 1}, .after = {1, 1}}},
      {"groups",
       dense({12, 3, 2, 5}, 2),
       10,
       {.stride = {2, 1}, .before = {1, 1}, .after = {1, 1}, .groups = 2}},
      {"depthwise",
       dense({70, 3, 3, 1}, 3),
       70,
       {.before = {1, 1}, .after = {1, 1}, .groups = 70, .activation = Activation::gelu}},
      {"two outputs a channel",
       dense({66, 3, 5, 1}, 4),
       33,
       {.stride = {1, 2}, .before = {1, 1}, .after = {1, 1}, .dilation = {2, 1}, .groups = 33}},
      {"codes", coded({40, 3, 3, 32}, 4, 32, 5), 32, {.before = {1, 1}, .after = {1, 1}}},
  };
  const int images = 3, high = 37, wide = 41;
  for (const Case& c : cases)
    for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
      set_precision(precision);
      SCOPED_TRACE(std::string(c.name) + ", " + kernels::to_string(precision));
      const array x = normal({images, high, wide, c.inputs}, 11), bias = normal({c.weight.shape[0]}, 12);
      Form bare = c.form;
      bare.before = bare.after = {0, 0};
      const array padded = evaluated(mx::pad(x, {{0, 0}, {1, 1}, {1, 1}, {0, 0}}));
      on_each_body([&] {
        const Convolution conv(c.weight, bias, c.form), unpadded(c.weight, bias, bare);
        const array whole = evaluated(conv(x));
        const Shape out = whole.shape();
        // Zeros that are there are zeros that are not.
        expect_same(values(unpadded(padded)), values(whole));
        for (int n = 0; n < images; ++n)
          expect_same(values(conv(mx::slice(x, {n, 0, 0, 0}, {n + 1, high, wide, c.inputs}))),
                      values(mx::slice(whole, {n, 0, 0, 0}, {n + 1, out[1], out[2], out[3]})));
        // A piece of an image: so many outputs alone.
        const auto reach = [&](size_t a, int outputs) {
          return (outputs - 1) * at(c.form.stride, a, 1) +
                 (c.weight.shape[a + 1] - 1) * at(c.form.dilation, a, 1) + 1;
        };
        for (const auto& [rows, columns] : {std::pair(1, 1), {1, 7}, {2, 8}, {3, 3}, {5, 17}})
          for (const auto& [top, left] : {std::pair(0, 0), {3, 2}, {11, 1}}) {
            const int y = top * at(c.form.stride, 0, 1), u = left * at(c.form.stride, 1, 1);
            const array piece =
                mx::slice(padded, {1, y, u, 0}, {2, y + reach(0, rows), u + reach(1, columns), c.inputs});
            expect_same(values(unpadded(piece)),
                        values(mx::slice(whole, {1, top, left, 0}, {2, top + rows, left + columns, out[3]})));
          }
      });
      if (HasFatalFailure()) return;
      if (!c.weight.format) break;
    }
}

TEST_F(Convolutions, StridedInputsAreRead) {
  const array x =
      mx::transpose(normal({2, 13, 21}, 3), {0, 2, 1});  // channels first, as many files have them
  const array wide = mx::astype(normal({2, 21, 13}, 4), mx::bfloat16);
  on_each([&] {
    for (const int groups : {1, 13}) {
      const Convolution conv(dense({26, 3, 13 / groups}, 5), std::nullopt, {.before = {1}, .groups = groups});
      expect_same(values(conv(x)), values(conv(evaluated(x))));
      if (kernel_mode() == KernelMode::native)
        expect_same(values(conv(wide)), values(conv(evaluated(mx::astype(wide, mx::float32)))));
    }
    // Weights may lie as torch has them.
    const Weight torch{"conv.weight", {6, 3, 13},   mx::transpose(normal({6, 13, 3}, 6), {0, 2, 1}),
                       std::nullopt,  std::nullopt, std::nullopt};
    Weight ours = torch;
    mx::eval(torch.data);
    ours.data = evaluated(torch.data);
    expect_same(values(Convolution(torch, std::nullopt, {})(x)),
                values(Convolution(ours, std::nullopt, {})(x)));
    EXPECT_EQ(Convolution(ours, std::nullopt, {})(mx::zeros({0, 5, 13})).shape(), (Shape{0, 3, 6}));
  });
}

TEST_F(Convolutions, TransposedAgreesWithTheLoop) {
  struct Case {
    int length, inputs, outputs, taps, stride, before, after;
  };
  for (const Case& c : {Case{9, 5, 7, 4, 2, 1, 1},
                        {9, 5, 7, 3, 2, 0, 0},
                        {1, 3, 2, 1, 4, 0, -3},
                        {20, 33, 16, 16, 8, 4, 4},
                        {6, 4, 5, 7, 3, 2, 0},
                        {6, 4, 5, 5, 3, 1, -1},
                        {11, 8, 3, 10, 1, 9, 0}}) {
    SCOPED_TRACE(std::to_string(c.taps) + " taps, stride " + std::to_string(c.stride));
    const Weight weight = dense({c.outputs, c.taps, c.inputs}, 5);
    const array x = normal({2, c.length, c.inputs}, 6), bias = normal({c.outputs}, 7);
    const Floats xs = values(x), ws = values(weight.data), bs = values(bias);
    const int full = (c.length - 1) * c.stride + c.taps, length = full - c.before - c.after;
    Expected want;
    for (int n = 0; n < 2; ++n)
      for (int t = c.before; t < c.before + length; ++t)
        for (int o = 0; o < c.outputs; ++o) {
          double sum = bs[static_cast<size_t>(o)], size = std::abs(sum);
          for (int i = 0; i < c.length; ++i) {
            const int tap = t - i * c.stride;
            if (tap < 0 || tap >= c.taps) continue;
            for (int k = 0; k < c.inputs; ++k) {
              const double term =
                  static_cast<double>(xs[static_cast<size_t>((n * c.length + i) * c.inputs + k)]) *
                  static_cast<double>(ws[static_cast<size_t>((o * c.taps + tap) * c.inputs + k)]);
              sum += term;
              size += std::abs(term);
            }
          }
          want.value.push_back(activated(sum, Activation::silu));
          want.size.push_back(size);
        }
    const Form form{
        .stride = {c.stride}, .before = {c.before}, .after = {c.after}, .activation = Activation::silu};
    on_each([&] {
      const Convolution conv = Convolution::transposed(weight, bias, form);
      EXPECT_EQ(conv.output_shape(x.shape()), (Shape{2, length, c.outputs}));
      expect_close(values(conv(x)), want, 2e-6);
      // A position depends on the inputs that reach it alone.
      if (kernel_mode() == KernelMode::native && c.length > 4 && c.before <= c.taps) {
        const array head = conv(mx::slice(x, {1, 0, 0}, {2, c.length - 1, c.inputs}));
        const int same = (c.length - 1) * c.stride - c.before;
        expect_same(values(mx::slice(head, {0, 0, 0}, {1, std::min(same, head.shape(1)), c.outputs})),
                    values(mx::slice(conv(x), {1, 0, 0}, {2, std::min(same, head.shape(1)), c.outputs})));
      }
    });
    if (HasFatalFailure()) return;
    if (c.after != c.before) continue;
    const Floats own = values(mx::add(mx::conv_transpose1d(x, weight.data, c.stride, c.before), bias));
    ASSERT_EQ(own.size(), want.value.size());
    for (size_t i = 0; i < own.size(); ++i)
      ASSERT_NEAR(activated(own[i], Activation::silu), want.value[i], 1e-4) << "MLX's own, value " << i;
  }
}

/// The error that `make` ends in: its kind, if its message holds `part`.
void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& make) {
  try {
    make();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("conv.weight"), std::string::npos) << error.what();
  }
}

TEST_F(Convolutions, HostileNumbersAreRefused) {
  const auto bad = ErrorKind::bad_checkpoint;
  const auto of = [](const Weight& weight, const Form& form,
                     const std::optional<array>& bias = std::nullopt) {
    return [=] { Convolution(weight, bias, form); };
  };
  /// A weight that says it has this shape; its memory is small.
  const auto claims = [](const Shape& shape) {
    Weight w = dense({2, 3}, 1);
    w.shape = shape;
    return w;
  };
  const Weight w = dense({8, 3, 4}, 1), plane = dense({8, 3, 3, 4}, 2);
  on_each([&] {
    expect_error(bad, "positive extents, found [8, 0, 4]", of(claims({8, 0, 4}), {}));
    expect_error(bad, "positive extents", of(claims({8, -3, 4}), {}));
    expect_error(bad, "positive extents", of(claims({0, 3, 4}), {}));
    expect_error(bad, "kernel of 1 to 3 axes", of(claims({8, 4}), {}));
    expect_error(bad, "kernel of 1 to 3 axes", of(claims({8, 1, 1, 1, 1, 4}), {}));
    expect_error(bad, "window of at most", of(claims({8, 1 << 30, 1 << 30, 1 << 30}), {}));
    expect_error(bad, "expected [8, 3, 4], found [2, 3]", of(claims({8, 3, 4}), {}));
    expect_error(bad, "stride from 1 to 1048576, found 0", of(w, {.stride = {0}}));
    expect_error(bad, "stride from 1 to 1048576, found -1", of(plane, {.stride = {1, -1}}));
    expect_error(bad, "stride from 1", of(w, {.stride = {2147483647}}));
    expect_error(bad, "stride for each of 2 axes, found 1", of(plane, {.stride = {1}}));
    expect_error(bad, "dilation from 1 to 1048576, found 0", of(w, {.dilation = {0}}));
    expect_error(bad, "dilation from 1", of(w, {.dilation = {2147483647}}));
    expect_error(bad, "padding in front from 0 to 1048576, found -1", of(w, {.before = {-1}}));
    expect_error(bad, "padding behind for each of 1 axes, found 2", of(w, {.after = {1, 1}}));
    expect_error(bad, "groups that divide 8 outputs, found 3", of(w, {.groups = 3}));
    expect_error(bad, "groups that divide 8 outputs, found 0", of(w, {.groups = 0}));
    expect_error(bad, "groups that divide 8 outputs, found -2", of(w, {.groups = -2}));
    expect_error(bad, "input channels", of(claims({1 << 20, 1, 1 << 20}), {.groups = 1 << 20}));
    expect_error(bad, "bias: expected [8], found [7]", of(w, {}, mx::zeros({7})));
    expect_error(ErrorKind::internal, "bias must be evaluated", of(w, {}, mx::ones({8}) + mx::ones({8})));
    expect_error(bad, "f32, f16 or bf16", of(dense({8, 3, 4}, 3, mx::int32), {}));
    expect_error(bad, "f32, f16 or bf16", of(dense({8, 3, 1}, 3, mx::int32), {.groups = 8}));
    Weight lazy = w;
    lazy.data = w.data + w.data;
    expect_error(ErrorKind::internal, "weight must be evaluated", of(lazy, {}));
    Weight codes = coded({8, 3, 32}, 4, 32, 4);
    expect_error(bad, "input channels", of(claims({1 << 10, 1, 1 << 20}), {.groups = 1 << 10}));
    codes.scales.reset();
    expect_error(bad, "scales are missing", of(codes, {}));
    codes = coded({8, 3, 32}, 4, 32, 4);
    codes.biases = evaluated(mx::zeros({8, 2, 1}));
    expect_error(bad, "biases: expected 8 rows", of(codes, {}));
    codes.shape = {8, 3, 20};  // 60 values are no whole groups
    expect_error(bad, "for windows [8, 3, 20]", of(codes, {}));

    const Convolution conv(w, std::nullopt, {.dilation = {2}});
    const auto over = [&](const Shape& shape) { return [&conv, shape] { conv(mx::zeros(shape)); }; };
    expect_error(ErrorKind::invalid_request, "has 4 positions on axis 1, 4 with padding: expected 5",
                 over({1, 4, 4}));
    expect_error(ErrorKind::invalid_request, "has 0 positions on axis 1", over({1, 0, 4}));
    expect_error(ErrorKind::internal, "ends in 4 channels, got [1, 9, 5]", over({1, 9, 5}));
    expect_error(ErrorKind::internal, "3 axes", over({1, 9, 9, 4}));
    EXPECT_THROW(conv.output_shape({2147483647, 2147483647, 4}), Error);
    expect_error(ErrorKind::invalid_request, "expected at most",
                 [&] { conv.output_shape({65536, 65536, 4}); });
    // An empty axis is refused even where padding would fill its window.
    const Convolution reaching(w, std::nullopt, {.before = {9}});
    EXPECT_THROW(reaching.output_shape({1, 0, 4}), Error);

    const auto up = [&](const Weight& weight, const Form& form) {
      return [=] { Convolution::transposed(weight, std::nullopt, form); };
    };
    expect_error(ErrorKind::unsupported, "one axis", up(plane, {}));
    expect_error(ErrorKind::unsupported, "in 2 groups", up(w, {.groups = 2}));
    expect_error(ErrorKind::unsupported, "no dilation", up(w, {.dilation = {2}}));
    expect_error(ErrorKind::unsupported, "dense", up(coded({8, 3, 32}, 4, 32, 4), {}));
    expect_error(bad, "stride from 1", up(w, {.stride = {0}}));
    expect_error(bad, "at most 1 positions behind the last, found 2", up(w, {.stride = {2}, .after = {-2}}));
    expect_error(bad, "beyond what one convolution holds",
                 up(dense({1 << 12, 1, 1 << 6}, 1), {.stride = {1 << 20}}));
    const Convolution all_cut = Convolution::transposed(w, std::nullopt, {.before = {3}});
    expect_error(ErrorKind::invalid_request, "are left: expected 1",
                 [&] { all_cut.output_shape({1, 1, 4}); });
  });
}

TEST_F(Convolutions, MemoryIsCounted) {
  set_kernel_mode(KernelMode::native);
  EXPECT_EQ(Convolution(dense({64, 3, 1}, 1), std::nullopt, {.groups = 64}).bytes(), size_t{2 * 3 * 32 * 4});
  EXPECT_EQ(Convolution(dense({64, 3, 5}, 1, mx::bfloat16), std::nullopt, {}).bytes(), size_t{64 * 15 * 2});
}

}  // namespace
}  // namespace mlxcel::kernels
