#include "kernels/matrix.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/isa/dispatch.h"
#include "kernels/packed.h"
#include "kernels/testdata.h"

namespace mlxcel::kernels {
namespace {

std::vector<float> values(const array& a) {
  const array wide = evaluated(mx::astype(a, mx::float32));
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

array random_array(const Shape& shape, int seed, float spread = 1.0f) {
  return evaluated(mx::multiply(
      mx::random::normal(shape, mx::float32, 0.0f, 1.0f, mx::random::key(static_cast<uint64_t>(seed))),
      array(spread)));
}

/// Codes of every value and scales about zero-mean weights, for any bits (mx::quantize is not needed).
Weight quantized_weight(const Shape& shape, QuantFormat format, mx::Dtype dtype, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Shape words = shape, groups = shape;
  words.back() = shape.back() * format.bits / 32;
  groups.back() = shape.back() / format.group_size;
  size_t count = 1;
  for (const auto extent : words) count *= static_cast<size_t>(extent);
  std::vector<uint32_t> code(count);
  for (auto& w : code) w = random();
  const float levels = static_cast<float>((1 << format.bits) - 1);
  const array scales = evaluated(mx::astype(
      mx::add(
          mx::multiply(mx::random::uniform(groups, mx::float32, mx::random::key(static_cast<uint64_t>(seed))),
                       array(0.05f)),
          array(0.01f)),
      dtype));
  const array biases =
      evaluated(mx::astype(mx::multiply(mx::astype(scales, mx::float32), array(-levels / 2)), dtype));
  return {"w" + std::to_string(seed), shape, array(code.begin(), words, mx::uint32), scales, biases, format};
}

/// A weight in one of the float formats, every code and sign among its values.
Weight float_weight(const Shape& shape, const QuantFormat& format, int seed) {
  const auto planes =
      mx::quantize(random_array(shape, seed, 0.3f), format.group_size, format.bits, to_string(format.mode));
  return {"f" + std::to_string(seed), shape,        evaluated(planes[0]),
          evaluated(planes[1]),       std::nullopt, format};
}

Weight dense_weight(const Shape& shape, mx::Dtype dtype, int seed) {
  return {"d" + std::to_string(seed),
          shape,
          evaluated(mx::astype(random_array(shape, seed, 0.3f), dtype)),
          std::nullopt,
          std::nullopt,
          std::nullopt};
}

/// The weight's values, row by row, as f64.
std::vector<double> dense_values(const Weight& w) {
  array dense = w.data;
  if (w.format) {
    std::optional<array> biases;
    if (w.biases) biases = mx::astype(*w.biases, mx::float32);
    dense = mx::dequantize(w.data, w.biases ? mx::astype(*w.scales, mx::float32) : *w.scales, biases,
                           w.format->group_size, w.format->bits, to_string(w.format->mode), std::nullopt,
                           mx::float32);
  }
  const auto v = values(dense);
  return {v.begin(), v.end()};
}

/// Largest |got - x w^T| over the norm product |x| |w| of its row, in f64.
double worst_error(const std::vector<float>& got, const std::vector<float>& x, const std::vector<double>& w,
                   int tokens, int rows, int columns) {
  double worst = 0;
  for (int t = 0; t < tokens; ++t)
    for (int r = 0; r < rows; ++r) {
      double sum = 0, nx = 0, nw = 0;
      for (int k = 0; k < columns; ++k) {
        const double a = x[static_cast<size_t>(t * columns + k)],
                     b = w[static_cast<size_t>(r) * static_cast<size_t>(columns) + static_cast<size_t>(k)];
        sum += a * b;
        nx += a * a;
        nw += b * b;
      }
      worst = std::max(worst,
                       std::abs(got[static_cast<size_t>(t * rows + r)] - sum) / (std::sqrt(nx * nw) + 1e-30));
    }
  return worst;
}

Matrix one(const Weight& w) { return Matrix::concatenated(std::span(&w, 1)); }

/// Runs a body for every instruction set of this machine.
template <class Body>
void on_each_isa(const Body& body) {
  const Isa before = isa();
  for (const Isa set : available_isas()) {
    set_isa(set);
    SCOPED_TRACE(to_string(set));
    body();
  }
  set_isa(before);
}

struct Restore {
  Precision precision = kernels::precision();
  KernelMode mode = kernel_mode();
  ~Restore() {
    set_precision(precision);
    set_kernel_mode(mode);
  }
};

double tolerance(Precision precision) {
  switch (precision) {
    case Precision::exact:
      return 4e-7;
    case Precision::high:
      return 1e-5;
    case Precision::fast:
      return 3e-3;
  }
  return 0;
}

const QuantFormat kFormats[] = {
    {QuantMode::affine, 4, 32}, {QuantMode::affine, 4, 64},  {QuantMode::affine, 4, 128},
    {QuantMode::affine, 8, 32}, {QuantMode::affine, 8, 128}, {QuantMode::affine, 2, 64},
    {QuantMode::affine, 3, 32}, {QuantMode::affine, 5, 32},  {QuantMode::affine, 6, 64}};
const QuantFormat kFloatFormats[] = {
    {QuantMode::mxfp4, 4, 32}, {QuantMode::nvfp4, 4, 16}, {QuantMode::mxfp8, 8, 32}};
const mx::Dtype kFloats[] = {mx::float16, mx::bfloat16, mx::float32};

TEST(Matrix, UnpackGivesBackWhatWasPacked) {
  on_each_isa([] {
    int seed = 1;
    for (const QuantFormat& format : kFormats)
      for (const mx::Dtype dtype : kFloats) {
        const Weight a = quantized_weight({21, 256}, format, dtype, seed++),
                     b = quantized_weight({7, 256}, format, dtype, seed++);
        const Weight both[] = {a, b};
        const auto back = Matrix::concatenated(both).unpack();
        ASSERT_EQ(back.size(), 2u);
        for (int i = 0; i < 2; ++i) {
          const Weight &was = both[i], &is = back[static_cast<size_t>(i)];
          EXPECT_EQ(is.name, was.name);
          EXPECT_EQ(is.shape, was.shape);
          EXPECT_TRUE(is.format == was.format);
          EXPECT_TRUE(mx::array_equal(is.data, was.data).item<bool>());
          EXPECT_EQ(is.scales->dtype(), dtype);
          EXPECT_TRUE(mx::array_equal(*is.scales, *was.scales).item<bool>());
          EXPECT_TRUE(mx::array_equal(*is.biases, *was.biases).item<bool>());
        }
      }
    for (const QuantFormat& format : kFloatFormats) {
      const Weight w = float_weight({21, 128}, format, seed++);
      const Matrix m = one(w);
      const auto back = m.unpack();
      EXPECT_TRUE(back[0].format == w.format);
      EXPECT_TRUE(mx::array_equal(back[0].data, w.data).item<bool>());
      EXPECT_TRUE(mx::array_equal(*back[0].scales, *w.scales).item<bool>());
      EXPECT_FALSE(back[0].biases);
    }
    for (const mx::Dtype dtype : kFloats) {
      const Weight w = dense_weight({37, 51}, dtype, seed++);
      const auto back = one(w).unpack();
      EXPECT_EQ(back[0].data.dtype(), dtype);
      EXPECT_TRUE(mx::array_equal(back[0].data, w.data).item<bool>());
      const Weight g = dense_weight({37, 51}, dtype, seed++);
      const auto pair = Matrix::gated(w, g).unpack();
      EXPECT_TRUE(mx::array_equal(pair[0].data, w.data).item<bool>());
      EXPECT_TRUE(mx::array_equal(pair[1].data, g.data).item<bool>());
    }
  });
}

TEST(Matrix, ProductMatchesF64) {
  const Restore restore;
  on_each_isa([] {
    int seed = 100;
    const auto check = [&](const Weight& w, int tokens) {
      const int rows = w.shape[0], columns = w.shape[1];
      const array x = random_array({tokens, columns}, seed++);
      const auto dense = dense_values(w);
      for (const Precision precision : {Precision::exact, Precision::high, Precision::fast}) {
        SCOPED_TRACE(to_string(precision));
        set_precision(precision);
        EXPECT_LT(worst_error(values(matmul(x, one(w))), values(x), dense, tokens, rows, columns),
                  tolerance(precision));
      }
    };
    for (const QuantFormat& format : kFormats)
      for (const mx::Dtype dtype : kFloats) {
        SCOPED_TRACE(fmt::format("{} bits, group {}", format.bits, format.group_size));
        const Weight w = quantized_weight({43, 384}, format, dtype, seed++);
        for (const int tokens : {1, 3, 11}) check(w, tokens);
      }
    for (const QuantFormat& format : kFloatFormats)
      for (const int tokens : {1, 3, 7, 19}) {
        SCOPED_TRACE(to_string(format.mode));
        check(float_weight({43, 384}, format, seed++), tokens);
      }
    for (const mx::Dtype dtype : kFloats)
      for (const int tokens : {1, 3, 11}) check(dense_weight({43, 77}, dtype, seed++), tokens);
  });
}

/// No format takes more room than its file: rows that fill their blocks hold codes and scales, nothing else.
TEST(Matrix, HoldsWhatTheFileHolds) {
  on_each_isa([] {
    const auto stored = [](const Weight& w) {
      return w.data.nbytes() + w.scales->nbytes() + (w.biases ? w.biases->nbytes() : 0);
    };
    for (const QuantFormat& format : kFormats) {
      const Weight w = quantized_weight({64, 256}, format, mx::float16, 50);
      EXPECT_EQ(one(w).bytes(), stored(w)) << format.bits << " bits, group " << format.group_size;
    }
    for (const QuantFormat& format : kFloatFormats) {
      const Weight w = float_weight({64, 256}, format, 51);
      EXPECT_EQ(one(w).bytes(), stored(w)) << to_string(format.mode);
    }
  });
}

/// Every code under every scale, the extremes among them, as the format defines them.
TEST(Matrix, FloatCodesKeepTheirValues) {
  const Restore restore;
  set_precision(Precision::exact);
  on_each_isa([] {
    for (const QuantFormat& format : kFloatFormats) {
      SCOPED_TRACE(to_string(format.mode));
      // Row r has scale r (rows whose scale is no number left out); its codes run through all values.
      constexpr int kRows = 254, kColumns = 256;
      std::vector<uint32_t> words(static_cast<size_t>(kRows) * kColumns * static_cast<size_t>(format.bits) /
                                  32);
      auto* const bytes = reinterpret_cast<uint8_t*>(words.data());
      for (size_t i = 0; i < words.size() * 4; ++i) {
        const auto code = static_cast<uint8_t>(i);
        bytes[i] = format.mode == QuantMode::mxfp8 && (code & 0x7f) == 0x7f ? uint8_t{0} : code;
      }
      const int groups = kColumns / format.group_size;
      std::vector<uint8_t> scales(static_cast<size_t>(kRows * groups));
      for (int r = 0; r < kRows; ++r)
        for (int g = 0; g < groups; ++g) {
          // Scales near the ends of e8m0 make f32 overflow or denormal: kept to where products are normal.
          const int e = 20 + (r + g) % 200;
          const int f = (r + g) % 254;
          scales[static_cast<size_t>(r * groups + g)] =
              static_cast<uint8_t>(format.mode == QuantMode::nvfp4 ? (f == 0x7f ? 1 : f) : e);
        }
      const Weight w{"codes",
                     {kRows, kColumns},
                     array(words.begin(), {kRows, kColumns * format.bits / 32}, mx::uint32),
                     array(scales.begin(), {kRows, groups}, mx::uint8),
                     std::nullopt,
                     format};
      const Matrix m = one(w);
      std::vector<int> id(kRows);
      for (int i = 0; i < kRows; ++i) id[static_cast<size_t>(i)] = i;
      const auto rows = values(take_rows(m, array(id.begin(), {kRows}, mx::int32)));
      const auto want = dense_values(w);
      // A product with one column's unit vector is that column's values: they pass through the bodies.
      for (const int column : {0, 1, 6, 15, 16, 31, 37, 255}) {
        std::vector<float> unit(kColumns, 0.0f);
        unit[static_cast<size_t>(column)] = 1.0f;
        for (const int tokens : {1, 9}) {
          const auto got = values(matmul(
              mx::broadcast_to(array(unit.begin(), {1, kColumns}, mx::float32), {tokens, kColumns}), m));
          for (int r = 0; r < kRows; ++r) {
            const size_t at = static_cast<size_t>(r) * kColumns + static_cast<size_t>(column);
            for (int t = 0; t < tokens; ++t)
              ASSERT_EQ(got[static_cast<size_t>(t * kRows + r)], static_cast<float>(want[at]))
                  << r << " " << column << " token " << t;
            ASSERT_EQ(rows[at], static_cast<float>(want[at])) << r << " " << column;
          }
        }
      }
    }
  });
}

/// Rows of a product are the same bits however many stand beside them, and wherever.
TEST(Matrix, RowsDoNotDependOnTheirNeighbours) {
  const Restore restore;
  on_each_isa([] {
    int seed = 300;
    const Weight weights[] = {quantized_weight({83, 640}, {QuantMode::affine, 4, 32}, mx::float16, 301),
                              quantized_weight({40, 640}, {QuantMode::affine, 8, 64}, mx::bfloat16, 302),
                              quantized_weight({40, 640}, {QuantMode::affine, 6, 128}, mx::float32, 303),
                              quantized_weight({40, 640}, {QuantMode::affine, 3, 64}, mx::float16, 307),
                              float_weight({40, 640}, kFloatFormats[0], 308),
                              float_weight({40, 640}, kFloatFormats[1], 309),
                              float_weight({40, 640}, kFloatFormats[2], 310),
                              dense_weight({50, 643}, mx::bfloat16, 304),
                              dense_weight({50, 643}, mx::float16, 305),
                              dense_weight({50, 643}, mx::float32, 306)};
    for (const Weight& w : weights)
      for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
        SCOPED_TRACE(w.name + " " + to_string(precision));
        set_precision(precision);
        const Matrix m = one(w);
        const int rows = m.rows();
        const array all = random_array({129, m.columns()}, seed++);
        const auto whole = values(matmul(all, m));
        for (const int count : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17, 18, 19, 64}) {
          for (const int first : {0, 1, 129 - count}) {
            const auto part = values(matmul(mx::slice(all, {first, 0}, {first + count, m.columns()}), m));
            ASSERT_EQ(std::memcmp(part.data(), whole.data() + static_cast<ptrdiff_t>(first) * rows,
                                  part.size() * sizeof(float)),
                      0)
                << count << " rows from " << first;
          }
        }
      }
  });
}

TEST(Matrix, ManyRowsCrossSlabsAndBatches) {
  const Restore restore;
  set_precision(Precision::high);
  const Weight w = quantized_weight({20, 2048}, {QuantMode::affine, 4, 64}, mx::float16, 400);
  const Matrix m = one(w);
  const array all = random_array({2100, 2048}, 401);
  const auto whole = values(matmul(all, m));
  for (const int row : {0, 47, 511, 1023, 1024, 1025, 2047, 2048, 2099}) {
    const auto alone = values(matmul(mx::slice(all, {row, 0}, {row + 1, 2048}), m));
    EXPECT_EQ(std::memcmp(alone.data(), whole.data() + static_cast<ptrdiff_t>(row) * 20, 80), 0) << row;
  }
}

TEST(Matrix, ConcatenatesMixedFormatsWithBiasAndResidual) {
  const Restore restore;
  on_each_isa([] {
    const Weight parts[] = {quantized_weight({24, 128}, {QuantMode::affine, 4, 64}, mx::float16, 500),
                            quantized_weight({9, 128}, {QuantMode::affine, 4, 64}, mx::float16, 501),
                            quantized_weight({17, 128}, {QuantMode::affine, 8, 64}, mx::float16, 502),
                            dense_weight({5, 128}, mx::bfloat16, 503)};
    const Matrix m = Matrix::concatenated(parts);
    EXPECT_EQ(m.rows(), 55);
    EXPECT_EQ(m.storage()->segments.size(), 3u);
    for (const int tokens : {1, 6, 40}) {
      const array x = random_array({tokens, 128}, 510), bias = random_array({55}, 511),
                  residual = random_array({tokens, 55}, 512);
      for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
        set_precision(precision);
        const auto got = values(mx::subtract(mx::subtract(matmul(x, m, bias, residual), residual), bias));
        std::vector<double> dense;
        for (const Weight& part : parts) {
          const auto v = dense_values(part);
          dense.insert(dense.end(), v.begin(), v.end());
        }
        EXPECT_LT(worst_error(got, values(x), dense, tokens, 55, 128), tolerance(precision) + 1e-6);
      }
    }
  });
}

TEST(Matrix, NativeAgreesWithItsTwin) {
  const Restore restore;
  set_precision(Precision::exact);
  const auto both = [&](const auto& build) {
    set_kernel_mode(KernelMode::reference);
    const auto twin = values(build());
    set_kernel_mode(KernelMode::native);
    const auto native = values(build());
    ASSERT_EQ(twin.size(), native.size());
    for (size_t i = 0; i < twin.size(); ++i)
      ASSERT_NEAR(twin[i], native[i], 2e-4 + 2e-4 * std::abs(twin[i])) << i;
  };
  const Weight gate = quantized_weight({40, 128}, {QuantMode::affine, 4, 32}, mx::float16, 600);
  const Weight up = quantized_weight({40, 128}, {QuantMode::affine, 4, 32}, mx::float16, 601);
  const Weight other = dense_weight({40, 128}, mx::float16, 602);
  const array x = random_array({9, 128}, 603), bias = random_array({40}, 604),
              bias2 = random_array({40}, 605);
  for (const Activation act : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu,
                               Activation::relu2, Activation::none}) {
    both([&] { return gated_matmul(x, Matrix::gated(gate, up), act); });
    both([&] { return gated_matmul(x, Matrix::gated(gate, up), act, bias, bias2); });
    both([&] { return gated_matmul(x, Matrix::gated(gate, other), act, bias); });  // two segments
    both([&] { return gated_matmul(x, Matrix::gated(other, other), act, std::nullopt, bias); });
  }
  for (const QuantFormat& f : {QuantFormat{QuantMode::mxfp4, 4, 32}, QuantFormat{QuantMode::nvfp4, 4, 16},
                               QuantFormat{QuantMode::mxfp8, 8, 32}}) {
    SCOPED_TRACE(to_string(f.mode));
    const auto planes = mx::quantize(random_array({40, 128}, 610), f.group_size, f.bits, to_string(f.mode));
    const Weight w{"fp", {40, 128}, evaluated(planes[0]), evaluated(planes[1]), std::nullopt, f};
    both([&] { return matmul(x, one(w)); });
    const array ids = array({3, 39, 0, 3});
    both([&] { return take_rows(one(w), ids); });
  }
  const array ids = array({3, 39, 0, 3, 7, 8, 9, 10, 11});
  for (const QuantFormat& f : kFormats) {
    const Weight w = quantized_weight({40, 128}, f, mx::float16, 620 + f.bits);
    both([&] { return take_rows(one(w), ids); });
    both([&] { return matmul(x, one(w), bias); });
  }
  for (const mx::Dtype dtype : kFloats)
    both([&] { return take_rows(one(dense_weight({40, 128}, dtype, 630)), ids); });
}

TEST(Matrix, BanksServeEachRowItsExperts) {
  const Restore restore;
  on_each_isa([] {
    constexpr int kExperts = 5, kRows = 20, kColumns = 64, kTokens = 13, kChosen = 2;
    const Shape shape{kExperts, kRows, kColumns};
    const Weight weights[] = {quantized_weight(shape, {QuantMode::affine, 4, 32}, mx::float16, 700),
                              dense_weight(shape, mx::bfloat16, 701)};
    std::vector<int> chosen;
    for (int i = 0; i < kTokens * kChosen; ++i) chosen.push_back((i * 7 + i / 3) % kExperts);
    const array experts(chosen.begin(), {kTokens, kChosen}, mx::int32);
    const array x = random_array({kTokens, kColumns}, 702),
                deep = random_array({kTokens, kChosen, kColumns}, 703);
    set_precision(Precision::high);
    for (const Weight& w : weights) {
      const auto expert = [&](const Weight& from, int e) {
        const auto pick = [&](const array& a) { return evaluated(mx::take(a, e, 0)); };
        Weight single{"e", {kRows, kColumns}, pick(from.data), std::nullopt, std::nullopt, from.format};
        if (from.scales) single.scales = pick(*from.scales), single.biases = pick(*from.biases);
        return single;
      };
      const Weight up = w.format ? quantized_weight(shape, *w.format, mx::float16, 710)
                                 : dense_weight(shape, mx::bfloat16, 711);
      const auto flat = values(gather_matmul(x, one(w), experts)),
                 own = values(gather_matmul(deep, one(w), experts));
      const auto gated = values(gather_gated_matmul(x, Matrix::gated(w, up), experts, Activation::silu));
      for (int t = 0; t < kTokens; ++t)
        for (int j = 0; j < kChosen; ++j) {
          const int e = chosen[static_cast<size_t>(t * kChosen + j)];
          const Weight single = expert(w, e);
          const array row = mx::slice(x, {t, 0}, {t + 1, kColumns});
          const auto a = values(matmul(row, one(single)));
          const auto b = values(matmul(
              mx::reshape(mx::slice(deep, {t, j, 0}, {t + 1, j + 1, kColumns}), {1, kColumns}), one(single)));
          const auto c = values(gated_matmul(row, Matrix::gated(single, expert(up, e)), Activation::silu));
          const ptrdiff_t at = static_cast<ptrdiff_t>(t * kChosen + j) * kRows;
          ASSERT_EQ(std::memcmp(a.data(), flat.data() + at, kRows * 4), 0) << t << " " << j;
          ASSERT_EQ(std::memcmp(b.data(), own.data() + at, kRows * 4), 0) << t << " " << j;
          ASSERT_EQ(std::memcmp(c.data(), gated.data() + at, kRows * 4), 0) << t << " " << j;
        }
      // The twin agrees.
      set_precision(Precision::exact);
      const auto native = values(gather_gated_matmul(x, Matrix::gated(w, up), experts, Activation::silu));
      set_kernel_mode(KernelMode::reference);
      const auto twin = values(gather_gated_matmul(x, Matrix::gated(w, up), experts, Activation::silu));
      const auto twin_own = values(gather_matmul(deep, one(w), experts));
      set_kernel_mode(KernelMode::native);
      set_precision(Precision::high);
      for (size_t i = 0; i < twin.size(); ++i) ASSERT_NEAR(twin[i], native[i], 1e-3);
      for (size_t i = 0; i < twin_own.size(); ++i) ASSERT_NEAR(twin_own[i], own[i], 1e-3);
    }
  });
}

TEST(Matrix, StridedInputsAndPlanes) {
  const Restore restore;
  set_precision(Precision::high);
  const Weight w = quantized_weight({32, 64}, {QuantMode::affine, 4, 32}, mx::float16, 800);
  const array turned = random_array({64, 5}, 801);
  const auto strided = values(matmul(mx::transpose(turned), one(w))),
             plain = values(matmul(evaluated(mx::transpose(turned)), one(w)));
  EXPECT_EQ(strided, plain);
  const array wide = random_array({7, 200}, 802),
              part = mx::slice(wide, {0, 40}, {7, 104});  // gaps between rows
  EXPECT_EQ(values(matmul(part, one(w))), values(matmul(evaluated(mx::add(part, array(0.0f))), one(w))));
  Weight sliced = w;  // every second row, as a view
  sliced.shape = {16, 64};
  const auto view = [](const array& a) {
    array v = mx::slice(a, {0, 0}, {32, a.shape(1)}, {2, 1});
    mx::eval(v);
    return v;
  };
  sliced.data = view(w.data);
  sliced.scales = view(*w.scales);
  sliced.biases = view(*w.biases);
  const auto rows = values(matmul(evaluated(mx::transpose(turned)), one(sliced)));
  for (int t = 0; t < 5; ++t)
    for (int r = 0; r < 16; ++r)
      EXPECT_EQ(rows[static_cast<size_t>(t * 16 + r)], plain[static_cast<size_t>(t * 32 + 2 * r)]);
}

TEST(Matrix, ExtremeActivations) {
  const Restore restore;
  on_each_isa([] {
    const Weight w = quantized_weight({16, 64}, {QuantMode::affine, 8, 32}, mx::float16, 900);
    for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
      set_precision(precision);
      for (const float v : values(matmul(mx::zeros({2, 64}), one(w)))) EXPECT_EQ(v, 0.0f);
      std::vector<float> x(64, 1.0f);
      x[40] = std::nanf("");
      for (const float v : values(matmul(array(x.begin(), {1, 64}), one(w)))) EXPECT_TRUE(std::isnan(v));
      x[40] = INFINITY;
      for (const float v : values(matmul(array(x.begin(), {1, 64}), one(w)))) EXPECT_FALSE(std::isfinite(v));
      // The largest products: no integer sum overflows.
      Weight full = quantized_weight({16, 128}, {QuantMode::affine, 8, 128}, mx::float32, 901);
      full.data = evaluated(mx::full({16, 32}, array(0xffffffffu)));
      full.scales = evaluated(mx::full({16, 1}, array(1.0f)));
      full.biases = evaluated(mx::full({16, 1}, array(0.0f)));
      for (const float v : values(matmul(mx::full({3, 128}, array(-2.0f)), one(full))))
        EXPECT_FLOAT_EQ(v, -2.0f * 255 * 128);
    }
  });
}

TEST(Matrix, RefusesWhatDoesNotFit) {
  const auto refused = [](const Weight& w) {
    try {
      one(w);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bad_checkpoint &&
             std::string(error.what()).find(w.name) != std::string::npos;
    }
    return false;
  };
  const Weight good = quantized_weight({8, 64}, {QuantMode::affine, 4, 32}, mx::float16, 950);
  Weight w = good;
  w.shape = {8, 96};
  EXPECT_TRUE(refused(w));
  w = good;
  w.format->bits = 7;
  EXPECT_TRUE(refused(w));
  w = good;
  w.format->group_size = 0;
  EXPECT_TRUE(refused(w));
  w = good;
  w.format->group_size = 16;
  EXPECT_TRUE(refused(w));
  w = good;
  w.scales = std::nullopt;
  EXPECT_TRUE(refused(w));
  w = good;
  w.biases = evaluated(mx::astype(*good.biases, mx::float32));
  EXPECT_TRUE(refused(w));
  w = good;
  w.scales = evaluated(mx::astype(*good.scales, mx::uint8));
  EXPECT_TRUE(refused(w));
  w = good;
  w.data = evaluated(mx::astype(good.data, mx::int32));
  EXPECT_TRUE(refused(w));
  w = good;
  w.shape = {512};
  EXPECT_TRUE(refused(w));
  w = dense_weight({4, 8}, mx::float32, 951);
  w.shape = {4, 9};
  EXPECT_TRUE(refused(w));
  w = dense_weight({4, 8}, mx::float32, 951);
  w.data = evaluated(mx::astype(w.data, mx::int32));
  EXPECT_TRUE(refused(w));
  w = dense_weight({4, 8}, mx::float32, 951);
  w.data = mx::add(w.data, array(1.0f));  // not evaluated
  EXPECT_THROW(one(w), Error);
  const Weight uneven[] = {good, quantized_weight({8, 128}, {QuantMode::affine, 4, 32}, mx::float16, 952)};
  EXPECT_THROW(Matrix::concatenated(uneven), Error);
  EXPECT_THROW(Matrix::concatenated({}), Error);
  EXPECT_THROW(Matrix::gated(good, quantized_weight({9, 64}, {QuantMode::affine, 4, 32}, mx::float16, 953)),
               Error);

  const Matrix m = one(good), pair = Matrix::gated(good, good);
  EXPECT_THROW(matmul(mx::zeros({2, 63}), m), Error);
  EXPECT_THROW(matmul(mx::zeros({64}), m), Error);
  EXPECT_THROW(matmul(mx::zeros({2, 64}), m, mx::zeros({9})), Error);
  EXPECT_THROW(matmul(mx::zeros({2, 64}), m, std::nullopt, mx::zeros({1, 8})), Error);
  EXPECT_THROW(matmul(mx::zeros({2, 64}), pair), Error);
  EXPECT_THROW(gated_matmul(mx::zeros({2, 64}), m, Activation::silu), Error);
  EXPECT_THROW(gather_matmul(mx::zeros({2, 64}), m, mx::zeros({2, 1}, mx::int32)), Error);
  EXPECT_THROW(mx::eval(take_rows(m, array({0, 8}))), std::exception);
  EXPECT_THROW(mx::eval(take_rows(m, array({-1}))), std::exception);
  EXPECT_EQ(values(take_rows(m, array({0}))).size(), 64u);  // the stream goes on
  EXPECT_EQ(matmul(mx::zeros({0, 64}), m).shape(), (Shape{0, 8}));
  mx::eval(matmul(mx::zeros({0, 64}), m));
  EXPECT_THROW(parse_precision("medium"), Error);
  EXPECT_EQ(parse_precision("fast"), Precision::fast);
}

}  // namespace
}  // namespace mlxcel::kernels
