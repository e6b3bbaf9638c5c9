// The 16-lane bodies, run through an emulation of their instructions: the layouts, tiles and row-wise
// operations of the AVX-512 tier are tested on machines that lack it.
#define MLXCEL_EMULATE_AVX512
#include "kernels/isa/avx512_emulation.h"
// The tier's words come first.
#include "kernels/isa/vector_avx512.h"
#include "kernels/isa/vector_math.h"

#include "kernels/isa/depthwise_body.h"
#include "kernels/isa/matmul_body.h"
#include "kernels/isa/rowwise_body.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/matmul.h"
#include "kernels/packed.h"

namespace {

using namespace mlxcel;
using kernels::Activation;
using kernels::Job;
using kernels::Matrix;
using kernels::Precision;

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(count);
  for (auto& x : v) x = normal(random);
  return v;
}

Weight random_weight(int rows, int columns, int bits, int group, mx::Dtype dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> code(static_cast<size_t>(rows * columns * bits / 32));
  for (auto& w : code) w = static_cast<uint32_t>(random());
  const float step = 0.5f / static_cast<float>(1 << bits);
  array scales = mx::full({rows, columns / group}, array(step, dtype)),
        biases = mx::full({rows, columns / group}, array(-0.25f, dtype));
  mx::eval(scales, biases);
  return {"w",    {rows, columns}, array(code.begin(), {rows, columns * bits / 32}, mx::uint32),
          scales, biases,          QuantFormat{QuantMode::affine, bits, group}};
}

Weight dense_weight(int rows, int columns, mx::Dtype dtype, unsigned seed) {
  const auto v = random_values(static_cast<size_t>(rows * columns), seed);
  array data = mx::astype(array(v.begin(), {rows, columns}, mx::float32), dtype);
  mx::eval(data);
  return {"d", {rows, columns}, data, std::nullopt, std::nullopt, std::nullopt};
}

Matrix::Storage packed(std::span<const Weight> weights, bool gated, const kernels::MatmulBodies& bodies) {
  Matrix::Storage storage;
  storage.bodies = &bodies;
  storage.columns = weights[0].shape[1];
  storage.gate_up = gated;
  for (const Weight& w : weights) storage.rows += w.shape[0];
  kernels::pack(storage, weights, gated);
  return storage;
}

std::vector<float> product(const Matrix::Storage& storage, const float* x, int tokens, Precision precision) {
  const int columns = storage.fused_gate() ? storage.rows / 2 : storage.rows;
  std::vector<float> out(static_cast<size_t>(tokens) * static_cast<size_t>(columns));
  kernels::Product p;
  p.weights = &storage;
  p.precision = precision;
  p.x = x;
  p.out = out.data();
  p.out_columns = columns;
  p.activation = Activation::silu;
  kernels::run_product(p, std::vector<Job>{{0, 0, tokens}});
  return out;
}

/// What eight bits keep of the values: `fast` multiplies these where byte products serve.
std::vector<float> in_eight_bits(std::vector<float> x) {
  for (size_t chunk = 0; chunk < x.size(); chunk += 32) {
    float most = 0.0f;
    for (size_t i = chunk; i < chunk + 32; ++i) most = std::max(most, std::abs(x[i]));
    for (size_t i = chunk; i < chunk + 32; ++i)
      x[i] = std::nearbyint(x[i] * (127.0f / most)) * (most / 127.0f);
  }
  return x;
}

TEST(EmulatedAvx512, AgreesWithTheGenericBodies) {
  ASSERT_EQ(kMatmul.lanes, 16);
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const mx::Dtype dtype : {mx::float16, mx::bfloat16, mx::float32}) {
      const Weight weights[] = {random_weight(37, 128, bits, 64, dtype, 1),
                                random_weight(37, 128, bits, 64, dtype, 2)};
      for (const bool gated : {false, true}) {
        const auto wide = packed(weights, gated, kMatmul),
                   narrow = packed(weights, gated, kernels::matmul_generic());
        const auto back = kernels::unpack(wide);
        EXPECT_TRUE(mx::array_equal(back[1].data, weights[1].data).item<bool>());
        const auto x = random_values(20 * 128, 3);
        for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
          const bool bytes =
              precision == Precision::fast && kMatmul.bytes_serve(wide.segments[0].layout.code);
          const auto whole = product(wide, x.data(), 20, precision),
                     other = bytes ? product(narrow, in_eight_bits(x).data(), 20, Precision::exact)
                                   : product(narrow, x.data(), 20, precision);
          for (size_t i = 0; i < whole.size(); ++i)
            ASSERT_NEAR(whole[i], other[i], 1e-4f * (1 + std::abs(other[i]))) << bits << " " << i;
          for (const int tokens : {1, 2, 5, 7, 8, 13}) {
            const auto part = product(wide, x.data() + 3 * 128, tokens, precision);
            ASSERT_EQ(std::memcmp(part.data(), whole.data() + 3 * (whole.size() / 20), part.size() * 4), 0)
                << bits << " " << tokens;
          }
        }
      }
    }
}

TEST(EmulatedAvx512, FloatFormatsAgreeWithTheGenericBodies) {
  for (const QuantFormat& format :
       {QuantFormat{QuantMode::mxfp4, 4, 32}, QuantFormat{QuantMode::nvfp4, 4, 16},
        QuantFormat{QuantMode::mxfp8, 8, 32}}) {
    const auto v = random_values(37 * 128, 8);
    auto planes = mx::quantize(array(v.begin(), {37, 128}, mx::float32), format.group_size, format.bits,
                               to_string(format.mode));
    mx::eval(planes);
    const Weight w{"f", {37, 128}, planes[0], planes[1], std::nullopt, format};
    const auto wide = packed(std::span(&w, 1), false, kMatmul),
               narrow = packed(std::span(&w, 1), false, kernels::matmul_generic());
    EXPECT_TRUE(mx::array_equal(kernels::unpack(wide)[0].data, w.data).item<bool>());
    const auto x = random_values(20 * 128, 9);
    for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
      const auto whole = product(wide, x.data(), 20, precision),
                 other = product(narrow, x.data(), 20, precision);
      for (size_t i = 0; i < whole.size(); ++i)
        ASSERT_NEAR(whole[i], other[i], 1e-4f * (1 + std::abs(other[i])))
            << to_string(format.mode) << " " << i;
      for (const int tokens : {1, 5, 8}) {
        const auto part = product(wide, x.data() + 128, tokens, precision);
        ASSERT_EQ(std::memcmp(part.data(), whole.data() + 37, part.size() * 4), 0);
      }
    }
  }
}

TEST(EmulatedAvx512, DenseAgreesWithTheGenericBodies) {
  for (const mx::Dtype dtype : {mx::float16, mx::bfloat16, mx::float32}) {
    const Weight w = dense_weight(41, 70, dtype, 4);
    const auto wide = packed(std::span(&w, 1), false, kMatmul),
               narrow = packed(std::span(&w, 1), false, kernels::matmul_generic());
    const auto x = random_values(9 * 70, 5);
    const auto whole = product(wide, x.data(), 9, Precision::high),
               other = product(narrow, x.data(), 9, Precision::high);
    for (size_t i = 0; i < whole.size(); ++i)
      ASSERT_NEAR(whole[i], other[i], 1e-4f * (1 + std::abs(other[i])));
    const auto alone = product(wide, x.data() + 70, 1, Precision::high);
    ASSERT_EQ(std::memcmp(alone.data(), whole.data() + 41, alone.size() * 4), 0);
  }
}

TEST(EmulatedAvx512, RowwiseAgreesWithTheGenericBodies) {
  const auto& other = kernels::rowwise_generic();
  const auto x = random_values(3 * 75, 6), w = random_values(75, 7);
  std::vector<float> a(x.size()), b(x.size());
  const auto same = [&](const char* what) {
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5f) << what << " " << i;
  };
  kRowwise.rms_norm(x.data(), w.data(), 1e-5f, 1.0f, 3, 75, a.data());
  other.rms_norm(x.data(), w.data(), 1e-5f, 1.0f, 3, 75, b.data());
  same("rms_norm");
  kRowwise.layer_norm(x.data(), w.data(), w.data(), 1e-5f, 3, 75, a.data());
  other.layer_norm(x.data(), w.data(), w.data(), 1e-5f, 3, 75, b.data());
  same("layer_norm");
  for (const bool interleaved : {false, true}) {
    kRowwise.rope(x.data(), w.data(), w.data() + 37, 3, 75, 37, interleaved, a.data());
    other.rope(x.data(), w.data(), w.data() + 37, 3, 75, 37, interleaved, b.data());
    same("rope");
  }
  for (int kind = 0; kind <= kExp; ++kind) {
    kRowwise.activate(x.data(), kind, x.size(), a.data());
    other.activate(x.data(), kind, x.size(), b.data());
    same("activate");
    kRowwise.gate(x.data(), x.data(), kind, x.size(), a.data());
    other.gate(x.data(), x.data(), kind, x.size(), b.data());
    same("gate");
  }
}

TEST(EmulatedAvx512, DepthwiseAgreesWithTheGenericBodies) {
  using kernels::kDepthwiseBlock;
  const auto& other = kernels::depthwise_generic();
  constexpr int kTaps = 5, kSlots = 40, kStride = 45;
  const auto x = random_values(kSlots * kStride, 8), weight = random_values(kTaps * kDepthwiseBlock, 9),
             bias = random_values(kDepthwiseBlock, 10);
  const int slot[kTaps] = {0, 2, 3, 7, 9};
  for (const int channels : {1, 15, 16, 17, 31, 32})
    for (const int outputs : {1, 4, 11, 15})
      for (const bool biased : {false, true}) {
        std::vector<float> slots(kSlots * kDepthwiseBlock, 1.0f), same = slots;
        kDepthwise.copy(x.data(), kStride, kSlots, channels, slots.data());
        other.copy(x.data(), kStride, kSlots, channels, same.data());
        ASSERT_EQ(slots, same) << channels;
        std::vector<float> a(kStride * 15, -3.0f), b = a;
        kernels::DepthwiseRun r{slots.data(), weight.data(), biased ? bias.data() : nullptr,
                                slot,         a.data(),      kStride,
                                kTaps,        outputs,       2,
                                channels,     kGelu};
        kDepthwise.run(r);
        r.out = b.data();
        other.run(r);
        for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5f) << channels << " " << i;
      }
}

}  // namespace
