#include "tensor/weight.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tensor/external.h"

namespace mlxcel {
namespace {

array filled(const Shape& shape, mx::Dtype dtype, const void* data) {
  array out = allocated(shape, dtype);
  std::memcpy(mutable_bytes(out), data, out.nbytes());
  return out;
}

TEST(Weight, AffineDequantizesInFullPrecision) {
  // Codes 0..15 twice; scale and bias whose f16 sum would round.
  const uint32_t words[4] = {0x76543210u, 0xfedcba98u, 0x76543210u, 0xfedcba98u};
  const mx::float16_t scale(0.1f), bias(-100.0f);
  Weight w{"w",
           {1, 32},
           filled({1, 4}, mx::uint32, words),
           filled({1, 1}, mx::float16, &scale),
           filled({1, 1}, mx::float16, &bias),
           QuantFormat{QuantMode::affine, 4, 32}};
  array dense = dequantized(w, mx::float32);
  mx::eval(dense);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(dense.data<float>()[i], static_cast<float>(i % 16) * static_cast<float>(scale) - 100.0f) << i;
}

TEST(Weight, FloatModesFollowTheirTables) {
  const uint32_t words[4] = {0x76543210u, 0xfedcba98u, 0x76543210u, 0xfedcba98u};
  const uint8_t scale = 128;  // 2^1
  Weight w{"w",
           {1, 32},
           filled({1, 4}, mx::uint32, words),
           filled({1, 1}, mx::uint8, &scale),
           std::nullopt,
           QuantFormat{QuantMode::mxfp4, 4, 32}};
  array dense = dequantized(w, mx::float32);
  mx::eval(dense);
  const float table[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(dense.data<float>()[i], table[i % 8] * 2 * (i % 16 < 8 ? 1.0f : -1.0f)) << i;
}

TEST(Weight, IdenticalLooksAtEveryPlane) {
  const uint32_t words[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
  const float scale = 1, bias = 2;
  const Weight a{"a",
                 {1, 32},
                 filled({1, 4}, mx::uint32, words),
                 filled({1, 1}, mx::float32, &scale),
                 filled({1, 1}, mx::float32, &bias),
                 QuantFormat{QuantMode::affine, 4, 32}};
  Weight b = a;
  EXPECT_TRUE(identical(a, b));
  b.data = filled({1, 4}, mx::uint32, other);
  EXPECT_FALSE(identical(a, b));
  b = a;
  b.biases = filled({1, 1}, mx::float32, &scale);
  EXPECT_FALSE(identical(a, b));
  b.biases.reset();
  EXPECT_FALSE(identical(a, b));
}

TEST(External, ViewsMemoryAndHoldsItsOwner) {
  auto memory = std::make_shared<std::vector<float>>(std::vector<float>{9, 9, 1, 2, 3, 4});
  std::weak_ptr<std::vector<float>> watch = memory;
  float* data = memory->data() + 2;
  std::optional<array> view;
  std::thread([&] { view = external(data, {2, 2}, mx::float32, std::move(memory)); }).join();
  EXPECT_EQ(view->data<float>(), data);
  array sum = mx::add(*view, *view);
  mx::eval(sum);
  EXPECT_EQ(sum.data<float>()[3], 8);
  EXPECT_FALSE(watch.expired());
  view.reset();
  sum = array(0);
  EXPECT_TRUE(watch.expired());
}

TEST(External, RowViewSharesAndIsBounded) {
  const float values[6] = {0, 1, 2, 3, 4, 5};
  const array parent = filled({3, 2}, mx::float32, values);
  const array rows = row_view(parent, 1, 2);
  EXPECT_EQ(bytes_of(rows), bytes_of(parent) + 8);
  EXPECT_EQ(rows.shape(), Shape({2, 2}));
  EXPECT_THROW(row_view(parent, 2, 2), Error);
  EXPECT_THROW(row_view(parent, -1, 1), Error);
  EXPECT_EQ(row_view(parent, 3, 0).size(), 0u);
}

}  // namespace
}  // namespace mlxcel
