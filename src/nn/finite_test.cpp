#include "nn/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <mlx/transforms.h>

#include "base/error.h"

namespace mlxcel {
namespace {

std::string message_of(const Weight& weight) {
  try {
    require_finite("layer.weight", weight);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_checkpoint);
    return error.what();
  }
  return "";
}

Weight weight_of(std::vector<float> values, mx::Dtype dtype) {
  array data = mx::astype(array(values.data(), {static_cast<int>(values.size())}, mx::float32), dtype);
  mx::eval(data);
  return {"w", {static_cast<int>(values.size())}, data, {}, {}, {}};
}

TEST(Finite, finds_one_bad_value_wherever_it_stands) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{9999}})
      for (const float bad :
           {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        std::vector<float> values(10000, 3.5f);
        EXPECT_EQ(message_of(weight_of(values, dtype)), "");
        values[at] = bad;
        EXPECT_EQ(message_of(weight_of(values, dtype)),
                  "layer.weight: expected numbers, found NaN or an infinity at value " + std::to_string(at) +
                      " of 10000");
      }
}

TEST(Finite, the_largest_and_smallest_numbers_are_numbers) {
  const std::vector<float> edges = {0.0f, -0.0f, 65504.0f, -65504.0f, 6e-8f};
  for (const mx::Dtype dtype : {mx::float32, mx::float16}) EXPECT_EQ(message_of(weight_of(edges, dtype)), "");
  EXPECT_EQ(message_of(weight_of({3e38f, -3e38f, 1e-45f}, mx::float32)), "");
}

TEST(Finite, looks_at_the_scales_and_biases_of_codes) {
  const uint32_t codes[] = {0xffffffffu, 0x7f800000u};
  Weight weight{"w", {1, 16}, array(codes, {1, 2}, mx::uint32), {}, {}, {}};
  weight.scales = array({1.0f}, {1, 1});
  weight.biases = array({0.0f}, {1, 1});
  EXPECT_EQ(message_of(weight), "");
  weight.scales = array({std::nanf("")}, {1, 1});
  EXPECT_NE(message_of(weight).find("in its scales at value 0 of 1"), std::string::npos);
  weight.scales = array({1.0f}, {1, 1});
  weight.biases = array({std::numeric_limits<float>::infinity()}, {1, 1});
  EXPECT_NE(message_of(weight).find("in its biases"), std::string::npos);
}

}  // namespace
}  // namespace mlxcel
