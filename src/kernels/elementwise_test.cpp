#include "kernels/elementwise.h"

#include <gtest/gtest.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/isa/dispatch.h"

namespace mlxcel::kernels {
namespace {

std::vector<float> values(const array& a) {
  array wide = mx::contiguous(mx::astype(a, mx::float32));
  mx::eval(wide);
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

array random_array(const Shape& shape, uint64_t seed, float spread = 1.0f) {
  array a =
      mx::multiply(mx::random::normal(shape, mx::float32, 0.0f, 1.0f, mx::random::key(seed)), array(spread));
  mx::eval(a);
  return a;
}

struct Restore {
  Isa set = isa();
  KernelMode mode = kernel_mode();
  ~Restore() {
    set_isa(set);
    set_kernel_mode(mode);
  }
};

/// The native form on every instruction set against the twin.
template <class Build>
void agree(const Build& build, float tolerance) {
  const Restore restore;
  set_kernel_mode(KernelMode::reference);
  const auto twin = values(build());
  set_kernel_mode(KernelMode::native);
  for (const Isa set : available_isas()) {
    set_isa(set);
    SCOPED_TRACE(to_string(set));
    const auto native = values(build());
    ASSERT_EQ(native.size(), twin.size());
    for (size_t i = 0; i < twin.size(); ++i)
      ASSERT_NEAR(native[i], twin[i], tolerance * (1.0f + std::abs(twin[i]))) << i;
  }
}

/// A row alone and the same row among others: the same bits.
template <class Build>
void rows_stand_alone(const array& x, const Build& build) {
  const Restore restore;
  for (const Isa set : available_isas()) {
    set_isa(set);
    const auto whole = values(build(x));
    const size_t each = whole.size() / static_cast<size_t>(x.shape(0));
    for (int row = 0; row < x.shape(0); row += 7) {
      Shape from(x.ndim(), 0), to = x.shape();
      from[0] = row;
      to[0] = row + 1;
      const auto alone = values(build(mx::slice(x, from, to)));
      ASSERT_EQ(
          std::memcmp(alone.data(), whole.data() + static_cast<size_t>(row) * each, each * sizeof(float)), 0)
          << row;
    }
  }
}

TEST(Elementwise, NormsAgreeWithTheirTwins) {
  for (const int width : {1, 5, 8, 16, 33, 576}) {
    const array x = random_array({37, width}, 1, 3.0f), w = random_array({width}, 2),
                b = random_array({width}, 3);
    agree([&] { return rms_norm(x, w, 1e-5f); }, 2e-6f);
    agree([&] { return rms_norm(x, w, 1e-5f, 1.0f); }, 2e-6f);
    agree([&] { return rms_norm(x, std::nullopt, 1e-5f); }, 2e-6f);
    agree([&] { return rms_norm(x, std::nullopt, 1e-5f, 0.5f); }, 2e-6f);
    if (width < 5) continue;  // one value has no variance
    agree([&] { return layer_norm(x, w, b, 1e-5f); }, 1e-5f);
    agree([&] { return layer_norm(x, w, std::nullopt, 1e-5f); }, 1e-5f);
    agree([&] { return layer_norm(x, std::nullopt, b, 1e-5f); }, 1e-5f);
    agree([&] { return layer_norm(x, std::nullopt, std::nullopt, 1e-5f); }, 1e-5f);
  }
  const array deep = random_array({3, 4, 20}, 4);
  agree([&] { return rms_norm(deep, random_array({20}, 5), 1e-6f); }, 2e-6f);
}

TEST(Elementwise, NormsOfOneValueAndOfALargeMean) {
  const array x = mx::full({1, 40}, array(1000.0f));
  for (const float v : values(layer_norm(x, std::nullopt, std::nullopt, 1e-5f))) EXPECT_EQ(v, 0.0f);
  for (const float v : values(rms_norm(x, std::nullopt, 0.0f))) EXPECT_FLOAT_EQ(v, 1.0f);
}

TEST(Elementwise, RopeAgreesWithItsTwin) {
  const array positions = array({0, 1, 2, 500, 7, 7, 2047, 31});
  for (const bool interleaved : {false, true})
    for (const int half : {1, 3, 8, 16, 32}) {
      std::vector<float> f;
      for (int i = 0; i < half; ++i)
        f.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(half)));
      const array frequencies(f.begin(), {half}, mx::float32);
      const array x = random_array({8, 3, 64}, 10);
      agree([&] { return rope(x, positions, frequencies, interleaved); },
            3e-4f);  // MLX's own sine at 2047 rad
      agree([&] { return rope(x, positions, frequencies, interleaved, 1.25f); }, 4e-4f);
    }
}

/// Against the definition in f64; a rotation keeps lengths.
TEST(Elementwise, RopeTurnsPairs) {
  const array x = random_array({2, 1, 6}, 11);
  const auto in = values(x);
  const float frequency[] = {0.7f, 0.01f};
  const array frequencies(frequency, {2}, mx::float32);
  const std::vector<int> at{3, 11};
  for (const bool interleaved : {false, true}) {
    const auto out = values(rope(x, array(at.begin(), {2}, mx::int32), frequencies, interleaved));
    for (size_t t = 0; t < 2; ++t)
      for (size_t i = 0; i < 2; ++i) {
        const size_t a = t * 6 + (interleaved ? 2 * i : i), b = t * 6 + (interleaved ? 2 * i + 1 : i + 2);
        const double angle = at[t] * static_cast<double>(frequency[i]);
        EXPECT_NEAR(out[a], in[a] * std::cos(angle) - in[b] * std::sin(angle), 1e-5);
        EXPECT_NEAR(out[b], in[b] * std::cos(angle) + in[a] * std::sin(angle), 1e-5);
        EXPECT_EQ(out[t * 6 + 4], in[t * 6 + 4]);
        EXPECT_EQ(out[t * 6 + 5], in[t * 6 + 5]);
      }
  }
}

TEST(Elementwise, RopeRemembersAnglesOfTheRightStep) {
  const array x = random_array({4, 2, 16}, 12);
  std::vector<float> f(8, 0.3f);
  const array frequencies(f.begin(), {8}, mx::float32);
  const auto turned = [&](std::initializer_list<int> at, float scale) {
    return values(rope(x, array(at, mx::int32), frequencies, false, scale));
  };
  const auto first = turned({0, 1, 2, 3}, 1.0f);
  for (int i = 0; i < 6; ++i) turned({i, i, i, i}, 1.0f);
  EXPECT_NE(turned({0, 1, 2, 4}, 1.0f), first);
  EXPECT_NE(turned({0, 1, 2, 3}, 2.0f), first);
  EXPECT_EQ(turned({0, 1, 2, 3}, 1.0f), first);
}

TEST(Elementwise, ActivationsAgreeWithF64) {
  const Restore restore;
  std::vector<float> x;
  for (float v = -12.0f; v <= 12.0f; v += 0.0073f) x.push_back(v);
  for (const float v : {-100.0f, -88.5f, -87.0f, 87.0f, 89.0f, 1e20f, -1e20f, 0.0f, 1e-30f, -1e-30f})
    x.push_back(v);
  const array in(x.begin(), {static_cast<int>(x.size())}, mx::float32);
  const auto exact = [](double v, Activation a) {
    switch (a) {
      case Activation::silu:
        return v / (1 + std::exp(-v));
      case Activation::gelu:
        return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      case Activation::gelu_tanh:
        return v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      case Activation::relu:
        return std::max(v, 0.0);
      case Activation::relu2:
        return std::max(v, 0.0) * std::max(v, 0.0);
      case Activation::sigmoid:
        return 1 / (1 + std::exp(-v));
      case Activation::tanh:
        return std::tanh(v);
      case Activation::softplus:
        return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v)));
      case Activation::exp:
        return std::exp(v);
      default:
        return v;
    }
  };
  for (const Isa set : available_isas()) {
    set_isa(set);
    for (const Activation a :
         {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::relu2,
          Activation::none, Activation::sigmoid, Activation::tanh, Activation::softplus, Activation::exp}) {
      const auto out = values(activate(in, a));
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = exact(x[i], a);
        if (want > 3e38) {
          EXPECT_TRUE(std::isinf(out[i]));
        } else {
          ASSERT_NEAR(out[i], want, 3e-7 + 1e-6 * std::abs(want))
              << to_string(set) << " " << static_cast<int>(a) << " at " << x[i];
        }
      }
      if (a == Activation::relu || a == Activation::relu2) continue;
      EXPECT_TRUE(std::isnan(values(activate(array({std::nanf("")}), a))[0]));
    }
  }
}

TEST(Elementwise, RowsStandAlone) {
  const array x = random_array({200, 101}, 20), w = random_array({101}, 21);
  rows_stand_alone(x, [&](const array& a) { return rms_norm(a, w, 1e-5f); });
  rows_stand_alone(x, [&](const array& a) { return layer_norm(a, w, w, 1e-5f); });
  for (const Activation act : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::sigmoid,
                               Activation::tanh, Activation::softplus, Activation::exp})
    rows_stand_alone(x, [&](const array& a) { return activate(a, act); });
}

/// Views with gaps between rows, and views that are strided all through, give what copies give.
TEST(Elementwise, ViewsGiveWhatCopiesGive) {
  const array all = random_array({150, 10, 16}, 22), w = random_array({16}, 23);
  std::vector<int> at;
  for (int i = 0; i < 150; ++i) at.push_back(i);
  const array positions(at.begin(), {150}, mx::int32), frequencies = mx::full({8}, array(0.1f));
  const auto copy = [](const array& a) {
    array c = mx::contiguous(mx::add(a, array(0.0f)));
    mx::eval(c);
    return c;
  };
  for (const array& view :
       {mx::slice(all, {0, 2, 0}, {150, 7, 16}), mx::slice(all, {0, 0, 0}, {150, 10, 16}, {1, 2, 1}),
        mx::transpose(random_array({10, 16, 150}, 24), {2, 0, 1})}) {
    const array plain = copy(view);
    EXPECT_EQ(values(rope(view, positions, frequencies, false)),
              values(rope(plain, positions, frequencies, false)));
    EXPECT_EQ(values(rms_norm(view, w, 1e-5f)), values(rms_norm(plain, w, 1e-5f)));
    EXPECT_EQ(values(layer_norm(view, w, w, 1e-5f)), values(layer_norm(plain, w, w, 1e-5f)));
    EXPECT_EQ(values(activate(view, Activation::silu)), values(activate(plain, Activation::silu)));
  }
  EXPECT_EQ(values(rms_norm(mx::slice(all, {0, 3, 0}, {1, 4, 16}), w, 1e-5f)).size(), 16u);
  EXPECT_EQ(values(rms_norm(random_array({16}, 25), w, 1e-5f)).size(), 16u);
}

TEST(Elementwise, RefusesWrongShapes) {
  const array x = mx::zeros({4, 8});
  EXPECT_THROW(rms_norm(x, mx::zeros({7}), 1e-5f), Error);
  EXPECT_THROW(rms_norm(array(1.0f), std::nullopt, 1e-5f), Error);
  EXPECT_THROW(layer_norm(x, std::nullopt, mx::zeros({8, 1}), 1e-5f), Error);
  const array heads = mx::zeros({4, 2, 8});
  EXPECT_THROW(rope(x, mx::zeros({4}, mx::int32), mx::zeros({4}), false), Error);
  EXPECT_THROW(rope(heads, mx::zeros({3}, mx::int32), mx::zeros({4}), false), Error);
  EXPECT_THROW(rope(heads, mx::zeros({4}, mx::int32), mx::zeros({5}), false), Error);
  mx::eval(rms_norm(mx::zeros({0, 8}), std::nullopt, 1e-5f),
           rope(mx::zeros({0, 2, 8}), mx::zeros({0}, mx::int32), mx::zeros({4}), true),
           activate(mx::zeros({0}), Activation::silu));
}

}  // namespace
}  // namespace mlxcel::kernels
