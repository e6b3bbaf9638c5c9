// Convolution and scan against double precision, their twins, and themselves in other chunks and company.
#include "kernels/recurrent.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "kernels/isa/dispatch.h"

namespace mlxcel::kernels {
namespace {

std::vector<float> draws(size_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(0.0f, scale);
  std::vector<float> x(count);
  for (float& value : x) value = draw(engine);
  return x;
}

array of(const std::vector<float>& x, const Shape& shape) { return array(x.begin(), shape, mx::float32); }
std::vector<float> values(const array& x) { return {x.data<float>(), x.data<float>() + x.size()}; }

struct Result {
  std::vector<float> out, state;
};

Result evaluated(std::pair<array, array> pair) {
  pair = {mx::contiguous(pair.first), mx::contiguous(pair.second)};
  mx::eval({pair.first, pair.second});
  return {values(pair.first), values(pair.second)};
}

void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  if (a.empty()) return;  // memcmp takes no null
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}
void expect_close(const std::vector<float>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}
std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

template <class T>
std::vector<T> part(const std::vector<T>& x, int from, int to, int width) {
  return {x.begin() + static_cast<std::ptrdiff_t>(from) * width,
          x.begin() + static_cast<std::ptrdiff_t>(to) * width};
}
template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class EveryBody : public ::testing::Test {
 protected:
  ~EveryBody() override {
    set_isa(isa_);
    set_kernel_mode(mode_);
  }
  template <class F>
  void on_each(const F& f) {
    for (const Isa isa : available_isas()) {
      set_isa(isa);
      SCOPED_TRACE(kernels::to_string(isa));
      f();
    }
    set_kernel_mode(KernelMode::reference);
    SCOPED_TRACE("reference");
    f();
    set_kernel_mode(KernelMode::native);
  }
  const Isa isa_ = isa();
  const KernelMode mode_ = kernel_mode();
};

struct Conv : EveryBody {
  int channels = 0, taps = 0;
  std::vector<float> weight, bias;
  void shape(int c, int k) {
    channels = c;
    taps = k;
    weight = draws(static_cast<size_t>(c * k), 1);
    bias = draws(static_cast<size_t>(c), 2);
  }
  Result run(const std::vector<float>& x, const std::vector<float>& state, const std::vector<int>& offsets,
             Activation activation = Activation::silu, bool biased = true) const {
    const int rows = static_cast<int>(offsets.size()) - 1;
    return evaluated(causal_conv(of(x, {offsets.back(), channels}), of(weight, {channels, taps}),
                                 biased ? std::optional(of(bias, {channels})) : std::nullopt,
                                 of(state, {rows, taps - 1, channels}), offsets, activation));
  }
};

TEST_F(Conv, AgreesWithTheOracle) {
  for (const auto& [c, k] : std::vector<std::pair<int, int>>{{16, 4}, {100, 4}, {3, 2}, {65, 1}, {8, 16}}) {
    shape(c, k);
    const int count = 9;
    const auto x = draws(static_cast<size_t>(count * c), 3),
               state = draws(static_cast<size_t>((k - 1) * c), 4);
    const auto all = joined(state, x);
    std::vector<double> want;
    for (int t = 0; t < count; ++t)
      for (int ch = 0; ch < c; ++ch) {
        double y = bias[static_cast<size_t>(ch)];
        for (int j = 0; j < k; ++j)
          y += static_cast<double>(weight[static_cast<size_t>(ch * k + j)]) *
               all[static_cast<size_t>((t + j) * c + ch)];
        want.push_back(y / (1 + std::exp(-y)));
      }
    on_each([&] {
      const Result got = run(x, state, {0, count});
      expect_close(got.out, want, 1e-5);
      expect_same(got.state, part(all, count, count + k - 1, c));
    });
  }
}

TEST_F(Conv, ChunksAndNeighboursChangeNoBit) {
  shape(70, 4);
  const int count = 13;
  const auto x = draws(static_cast<size_t>(count * 70), 5), state = draws(3 * 70, 6),
             other = draws(4 * 70, 7);
  on_each([&] {
    const Result whole = run(x, state, {0, count});
    for (const int cut : {1, 2, 5, 12}) {
      const Result first = run(part(x, 0, cut, 70), state, {0, cut});
      const Result second = run(part(x, cut, count, 70), first.state, {0, count - cut});
      expect_same(joined(first.out, second.out), whole.out);
      expect_same(second.state, whole.state);
    }
    const Result both = run(joined(other, x), joined(draws(3 * 70, 8), state), {0, 4, 4 + count});
    expect_same(part(both.out, 4, 4 + count, 70), whole.out);
    expect_same(part(both.state, 3, 6, 70), whole.state);
    const Result none = run(x, joined(state, draws(3 * 70, 8)), {0, count, count});
    expect_same(part(none.state, 3, 6, 70), draws(3 * 70, 8));  // a row without tokens keeps its state
  });
}

TEST_F(Conv, ShapesAreChecked) {
  const array x = mx::zeros({4, 8}), w = mx::zeros({8, 4});
  EXPECT_THROW(causal_conv(x, w, std::nullopt, mx::zeros({1, 4, 8}), {0, 4}, Activation::none), Error);
  EXPECT_THROW(causal_conv(x, w, std::nullopt, mx::zeros({1, 3, 8}), {0, 5}, Activation::none), Error);
  EXPECT_THROW(causal_conv(x, w, std::nullopt, mx::zeros({2, 3, 8}), {0, 5, 4}, Activation::none), Error);
  EXPECT_THROW(
      causal_conv(x, mx::zeros({8, 17}), std::nullopt, mx::zeros({1, 16, 8}), {0, 4}, Activation::none),
      Error);
  EXPECT_THROW(causal_conv(x, w, mx::zeros({7}), mx::zeros({1, 3, 8}), {0, 4}, Activation::none), Error);
}

struct Scan : EveryBody {
  int heads = 0, dim = 0, groups = 0, states = 0;
  std::vector<float> a, d;
  struct Tokens {
    std::vector<float> x, dt, b, c;
  };
  void shape(int h, int p, int g, int n) {
    heads = h, dim = p, groups = g, states = n;
    a = draws(static_cast<size_t>(h), 1);
    for (float& value : a) value = -std::fabs(value) - 0.1f;
    d = draws(static_cast<size_t>(h), 2);
  }
  Tokens tokens(int count, unsigned seed) const {
    Tokens t{draws(static_cast<size_t>(count * heads * dim), seed),
             draws(static_cast<size_t>(count * heads), seed + 1),
             draws(static_cast<size_t>(count * groups * states), seed + 2),
             draws(static_cast<size_t>(count * groups * states), seed + 3)};
    for (float& value : t.dt) value = std::fabs(value);
    return t;
  }
  Tokens cut(const Tokens& t, int from, int to) const {
    return {part(t.x, from, to, heads * dim), part(t.dt, from, to, heads),
            part(t.b, from, to, groups * states), part(t.c, from, to, groups * states)};
  }
  Result run(const Tokens& t, const std::vector<float>& state, const std::vector<int>& offsets) const {
    const int count = offsets.back(), rows = static_cast<int>(offsets.size()) - 1;
    return evaluated(ssm_scan(of(t.x, {count, heads, dim}), of(t.dt, {count, heads}), of(a, {heads}),
                              of(t.b, {count, groups, states}), of(t.c, {count, groups, states}),
                              of(d, {heads}), of(state, {rows, heads, dim, states}), offsets));
  }
};

TEST_F(Scan, AgreesWithTheOracle) {
  for (const auto& s : std::vector<std::array<int, 4>>{{4, 8, 2, 16}, {3, 7, 1, 5}, {6, 16, 3, 40}}) {
    shape(s[0], s[1], s[2], s[3]);
    const int count = 11;
    const Tokens t = tokens(count, 3);
    const auto start = draws(static_cast<size_t>(heads * dim * states), 9);
    std::vector<double> h = wide(start), want(t.x.size());
    for (int i = 0; i < count; ++i)
      for (int head = 0; head < heads; ++head) {
        const double dt = t.dt[static_cast<size_t>(i * heads + head)],
                     decay = std::exp(dt * a[static_cast<size_t>(head)]);
        const auto group = static_cast<size_t>((i * groups + head / (heads / groups)) * states);
        for (int p = 0; p < dim; ++p) {
          const auto at = static_cast<size_t>((i * heads + head) * dim + p);
          double y = d[static_cast<size_t>(head)] * static_cast<double>(t.x[at]);
          for (size_t n = 0; n < static_cast<size_t>(states); ++n) {
            double& value = h[static_cast<size_t>((head * dim + p) * states) + n];
            value = decay * value + dt * t.x[at] * t.b[group + n];
            y += value * t.c[group + n];
          }
          want[at] = y;
        }
      }
    on_each([&] {
      const Result got = run(t, start, {0, count});
      expect_close(got.out, want, 2e-5);
      expect_close(got.state, h, 1e-5);
    });
  }
}

TEST_F(Scan, ChunksAndNeighboursChangeNoBit) {
  shape(6, 10, 2, 20);
  const int count = 9, held = heads * dim * states;
  const Tokens t = tokens(count, 20), u = tokens(3, 40);
  const auto start = draws(static_cast<size_t>(held), 9), other = draws(static_cast<size_t>(held), 10);
  on_each([&] {
    const Result whole = run(t, start, {0, count});
    for (const int at : {1, 4, 8}) {
      const Result first = run(cut(t, 0, at), start, {0, at});
      const Result second = run(cut(t, at, count), first.state, {0, count - at});
      expect_same(joined(first.out, second.out), whole.out);
      expect_same(second.state, whole.state);
    }
    const Tokens both{joined(u.x, t.x), joined(u.dt, t.dt), joined(u.b, t.b), joined(u.c, t.c)};
    const Result got = run(both, joined(joined(other, other), start), {0, 3, 3, 3 + count});
    expect_same(part(got.out, 3, 3 + count, heads * dim), whole.out);
    expect_same(part(got.state, 1, 2, held), other);
    expect_same(part(got.state, 2, 3, held), whole.state);
  });
}

TEST_F(Scan, ShapesAreChecked) {
  const array x = mx::zeros({4, 6, 8}), dt = mx::zeros({4, 6}), rate = mx::zeros({6}),
              b = mx::zeros({4, 2, 5});
  const array state = mx::zeros({1, 6, 8, 5});
  EXPECT_NO_THROW(ssm_scan(x, dt, rate, b, b, rate, state, {0, 4}));
  EXPECT_THROW(ssm_scan(x, dt, rate, mx::zeros({4, 4, 5}), b, rate, state, {0, 4}), Error);
  EXPECT_THROW(ssm_scan(x, mx::zeros({4, 5}), rate, b, b, rate, state, {0, 4}), Error);
  EXPECT_THROW(ssm_scan(x, dt, rate, b, b, rate, mx::zeros({2, 6, 8, 5}), {0, 4}), Error);
  EXPECT_THROW(ssm_scan(x, dt, rate, b, b, rate, state, {0, 3}), Error);
}

struct Selective : EveryBody {
  int channels = 0, states = 0;
  std::vector<float> a, d;
  void shape(int c, int n) {
    channels = c, states = n;
    a = draws(static_cast<size_t>(c * n), 1);
    for (float& value : a) value = -std::fabs(value) - 0.1f;
    d = draws(static_cast<size_t>(c), 2);
  }
  struct Tokens {
    std::vector<float> x, dt, b, c;
  };
  Tokens tokens(int count, unsigned seed) const {
    Tokens t{draws(static_cast<size_t>(count * channels), seed),
             draws(static_cast<size_t>(count * channels), seed + 1),
             draws(static_cast<size_t>(count * states), seed + 2),
             draws(static_cast<size_t>(count * states), seed + 3)};
    for (float& value : t.dt) value = std::fabs(value);
    return t;
  }
  Tokens cut(const Tokens& t, int from, int to) const {
    return {part(t.x, from, to, channels), part(t.dt, from, to, channels), part(t.b, from, to, states),
            part(t.c, from, to, states)};
  }
  Result run(const Tokens& t, const std::vector<float>& state, const std::vector<int>& offsets) const {
    const int count = offsets.back(), rows = static_cast<int>(offsets.size()) - 1;
    return evaluated(selective_scan(of(t.x, {count, channels}), of(t.dt, {count, channels}),
                                    of(a, {channels, states}), of(t.b, {count, states}),
                                    of(t.c, {count, states}), of(d, {channels}),
                                    of(state, {rows, channels, states}), offsets));
  }
};

TEST_F(Selective, AgreesWithTheOracle) {
  for (const auto& [c, n] : std::vector<std::pair<int, int>>{{16, 16}, {100, 5}, {3, 1}, {65, 20}}) {
    shape(c, n);
    const int count = 9;
    const Tokens t = tokens(count, 3);
    const auto start = draws(static_cast<size_t>(c * n), 9);
    std::vector<double> h = wide(start), want;
    for (int i = 0; i < count; ++i)
      for (int ch = 0; ch < c; ++ch) {
        const auto at = static_cast<size_t>(i * c + ch);
        double y = d[static_cast<size_t>(ch)] * static_cast<double>(t.x[at]);
        for (int k = 0; k < n; ++k) {
          double& held = h[static_cast<size_t>(ch * n + k)];
          held = std::exp(static_cast<double>(t.dt[at]) * a[static_cast<size_t>(ch * n + k)]) * held +
                 static_cast<double>(t.dt[at]) * t.x[at] * t.b[static_cast<size_t>(i * n + k)];
          y += held * t.c[static_cast<size_t>(i * n + k)];
        }
        want.push_back(y);
      }
    on_each([&] {
      const Result got = run(t, start, {0, count});
      expect_close(got.out, want, 2e-5);
      expect_close(got.state, h, 1e-5);
    });
  }
}

TEST_F(Selective, ChunksAndNeighboursChangeNoBit) {
  shape(70, 12);
  const int count = 9, held = 70 * 12;
  const Tokens t = tokens(count, 20), u = tokens(3, 40);
  const auto start = draws(static_cast<size_t>(held), 9), other = draws(static_cast<size_t>(held), 10);
  on_each([&] {
    const Result whole = run(t, start, {0, count});
    const Result first = run(cut(t, 0, 4), start, {0, 4});
    const Result second = run(cut(t, 4, count), first.state, {0, count - 4});
    expect_same(joined(first.out, second.out), whole.out);
    expect_same(second.state, whole.state);
    const Tokens both{joined(u.x, t.x), joined(u.dt, t.dt), joined(u.b, t.b), joined(u.c, t.c)};
    const Result got = run(both, joined(joined(other, other), start), {0, 3, 3, 3 + count});
    expect_same(part(got.out, 3, 3 + count, 70), whole.out);
    expect_same(part(got.state, 1, 2, held), other);
    expect_same(part(got.state, 2, 3, held), whole.state);
  });
}

struct Delta : EveryBody {
  int heads = 0, columns = 0, dim = 0;
  void shape(int h, int k, int v) { heads = h, columns = k, dim = v; }
  /// decay, read, write, key, query, value.
  using Tokens = std::array<std::vector<float>, 6>;
  int width(size_t i) const { return heads * (i == 5 ? dim : columns); }
  Tokens tokens(int count, unsigned seed) const {
    Tokens t;
    for (size_t i = 0; i < 6; ++i)
      t[i] = draws(static_cast<size_t>(count * width(i)), seed + static_cast<unsigned>(i),
                   i == 1 || i == 2 ? 0.3f : 1.0f);
    for (float& value : t[0]) value = 1.0f / (1.0f + std::exp(-value));
    return t;
  }
  Tokens cut(const Tokens& t, int from, int to) const {
    Tokens piece;
    for (size_t i = 0; i < 6; ++i) piece[i] = part(t[i], from, to, width(i));
    return piece;
  }
  Result run(const Tokens& t, const std::vector<float>& state, const std::vector<int>& offsets) const {
    const int count = offsets.back(), rows = static_cast<int>(offsets.size()) - 1;
    const auto at = [&](size_t i) { return of(t[i], {count, heads, i == 5 ? dim : columns}); };
    return evaluated(delta_scan({at(0), at(1), at(2), at(3), at(4), at(5)},
                                of(state, {rows, heads, dim, columns}), offsets));
  }
};

TEST_F(Delta, AgreesWithTheOracle) {
  for (const auto& s : std::vector<std::array<int, 3>>{{2, 16, 8}, {3, 5, 7}, {1, 24, 2}}) {
    shape(s[0], s[1], s[2]);
    const int count = 7;
    const Tokens t = tokens(count, 3);
    const auto start = draws(static_cast<size_t>(heads * dim * columns), 9);
    std::vector<double> state = wide(start), want;
    for (int i = 0; i < count; ++i)
      for (int h = 0; h < heads; ++h)
        for (int p = 0; p < dim; ++p) {
          double* row = &state[static_cast<size_t>((h * dim + p) * columns)];
          const auto at = static_cast<size_t>((i * heads + h) * columns);
          double change = 0, y = 0;
          for (size_t n = 0; n < static_cast<size_t>(columns); ++n) change += row[n] * t[1][at + n];
          for (size_t n = 0; n < static_cast<size_t>(columns); ++n) {
            row[n] = row[n] * t[0][at + n] + change * t[2][at + n] +
                     static_cast<double>(t[5][static_cast<size_t>((i * heads + h) * dim + p)]) * t[3][at + n];
            y += row[n] * t[4][at + n];
          }
          want.push_back(y);
        }
    on_each([&] {
      const Result got = run(t, start, {0, count});
      expect_close(got.out, want, 1e-4);
      expect_close(got.state, state, 3e-5);
    });
  }
}

TEST_F(Delta, ChunksAndNeighboursChangeNoBit) {
  shape(3, 20, 6);
  const int count = 9, held = 3 * 20 * 6;
  const Tokens t = tokens(count, 20), u = tokens(3, 40);
  const auto start = draws(static_cast<size_t>(held), 9), other = draws(static_cast<size_t>(held), 10);
  on_each([&] {
    const Result whole = run(t, start, {0, count});
    for (const int at : {1, 4, 8}) {
      const Result first = run(cut(t, 0, at), start, {0, at});
      const Result second = run(cut(t, at, count), first.state, {0, count - at});
      expect_same(joined(first.out, second.out), whole.out);
      expect_same(second.state, whole.state);
    }
    Tokens both;
    for (size_t i = 0; i < 6; ++i) both[i] = joined(u[i], t[i]);
    const Result got = run(both, joined(joined(other, other), start), {0, 3, 3, 3 + count});
    expect_same(part(got.out, 3, 3 + count, heads * dim), whole.out);
    expect_same(part(got.state, 1, 2, held), other);
    expect_same(part(got.state, 2, 3, held), whole.state);
  });
}

struct Sum : EveryBody {
  static Result run(const std::vector<float>& x, const std::vector<float>& decay,
                    const std::vector<float>& state, const std::vector<int>& offsets, int channels) {
    const int rows = static_cast<int>(offsets.size()) - 1;
    return evaluated(gated_sum(of(x, {offsets.back(), channels}), of(decay, {offsets.back(), channels}),
                               of(state, {rows, channels}), offsets));
  }
};

TEST_F(Sum, AgreesWithTheOracleInChunksAndCompany) {
  const int count = 9, channels = 13;
  const auto x = draws(count * channels, 1), decay = draws(count * channels, 2, 0.5f),
             start = draws(channels, 3);
  std::vector<double> h = wide(start), want;
  for (size_t i = 0; i < count; ++i)
    for (size_t c = 0; c < channels; ++c)
      want.push_back(h[c] = h[c] * decay[i * channels + c] + static_cast<double>(x[i * channels + c]));
  on_each([&] {
    const Result whole = run(x, decay, start, {0, count}, channels);
    expect_close(whole.out, want, 1e-5);
    expect_close(whole.state, h, 1e-5);
    const Result first = run(part(x, 0, 4, channels), part(decay, 0, 4, channels), start, {0, 4}, channels);
    const Result second = run(part(x, 4, count, channels), part(decay, 4, count, channels), first.state,
                              {0, count - 4}, channels);
    expect_same(joined(first.out, second.out), whole.out);
    const Result both = run(joined(part(x, 0, 2, channels), x), joined(part(decay, 0, 2, channels), decay),
                            joined(joined(start, start), start), {0, 2, 2, 2 + count}, channels);
    expect_same(part(both.out, 2, 2 + count, channels), whole.out);
    expect_same(part(both.state, 1, 2, channels), start);
  });
}

TEST(Scans, ShapesAreChecked) {
  const array x = mx::zeros({4, 8}), state = mx::zeros({1, 8}), d = mx::zeros({8});
  EXPECT_THROW(gated_sum(x, mx::zeros({4, 7}), state, {0, 4}), Error);
  EXPECT_THROW(gated_sum(x, x, mx::zeros({2, 8}), {0, 4}), Error);
  EXPECT_THROW(gated_sum(x, x, state, {0, 3}), Error);
  const array b = mx::zeros({4, 3}), a = mx::zeros({8, 3}), held = mx::zeros({1, 8, 3});
  EXPECT_NO_THROW(selective_scan(x, x, a, b, b, d, held, {0, 4}));
  EXPECT_THROW(selective_scan(x, x, mx::zeros({3, 8}), b, b, d, held, {0, 4}), Error);
  EXPECT_THROW(selective_scan(x, x, a, b, mx::zeros({4, 2}), d, held, {0, 4}), Error);
  const array k = mx::zeros({4, 2, 6}), v = mx::zeros({4, 2, 5}), s = mx::zeros({1, 2, 5, 6});
  EXPECT_NO_THROW(delta_scan({k, k, k, k, k, v}, s, {0, 4}));
  EXPECT_THROW(delta_scan({k, k, v, k, k, v}, s, {0, 4}), Error);
  EXPECT_THROW(delta_scan({k, k, k, k, k, v}, mx::zeros({1, 2, 6, 5}), {0, 4}), Error);
}

}  // namespace
}  // namespace mlxcel::kernels
