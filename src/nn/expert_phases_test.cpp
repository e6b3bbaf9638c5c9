// What phases say of a row in plain memory has the bits of the nodes that they stand for.
#include "nn/expert_phases.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <cstring>
#include <limits>
#include <vector>

#include "nn/glu_rows.h"

namespace mlxcel {
namespace {

array evaluated(array a) {
  a = mx::contiguous(a);
  mx::eval(a);
  return a;
}

bool same(const std::vector<float>& got, const array& want) {
  const array whole = evaluated(want);
  return got.size() == whole.size() &&
         std::memcmp(got.data(), whole.data<float>(), got.size() * sizeof(float)) == 0;
}

TEST(GluRows, EveryClampGivesTheBitsOfItsNodes) {
  const float far = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const ClampedGlu forms[] = {{.limit = 0.6f},
                              {.limit = 0.6f, .after = true},
                              {.limit = 0.9f, .alpha = 1.702f, .offset = 1.0f},
                              {.limit = 0.5f, .offset = 1.0f, .after = true},
                              {.bend = 1.5f},
                              {.bend = 1.5f, .up_bend = 0.7f}};
  for (const int width : {1, 7, 16, 45, 64}) {
    const array noise = evaluated(mx::multiply(mx::random::normal({2 * width}), array(3.0f)));
    std::vector<float> both(noise.data<float>(), noise.data<float>() + 2 * width);
    const float odd[] = {0.6f, -0.6f, 0.0f, -0.0f, far, -far};
    for (size_t i = 0; i < both.size() && i < 6; ++i) both[both.size() - 1 - i] = odd[i];
    if (width > 7) both[3] = far, both[4] = -far;
    for (size_t f = 0; f < std::size(forms); ++f) {
      std::vector<float> out(static_cast<size_t>(width), nan);
      clamped_row(forms[f], both.data(), both.data() + width, width, out.data());
      const array x(both.begin(), {1, 2 * width}, mx::float32);
      const array want = evaluated(forms[f].halves(x));
      for (int i = 0; i < width; ++i) {
        const float got = out[static_cast<size_t>(i)], expected = want.data<float>()[i];
        EXPECT_TRUE(got == expected || (got != got && expected != expected))
            << "form " << f << ", " << i << " of " << width << ": " << got << " and " << expected;
      }
    }
  }
}

TEST(GluRows, NotANumberStaysOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> both{nan, 1.0f, 1.0f, nan};
  for (const ClampedGlu& form : {ClampedGlu{.limit = 0.6f}, ClampedGlu{.limit = 0.6f, .after = true},
                                 ClampedGlu{.limit = 0.6f, .alpha = 1.7f}, ClampedGlu{.bend = 1.0f}}) {
    std::vector<float> out(2);
    clamped_row(form, both.data(), both.data() + 2, 2, out.data());
    EXPECT_NE(out[0], out[0]);
    EXPECT_NE(out[1], out[1]);
  }
}

TEST(TwoWeights, ARowIsWhatItsNodeIs) {
  const float far = std::numeric_limits<float>::infinity();
  const std::vector<float> logits{0.3f, -1.2f, -1.2f, 0.3f, 2.0f, 2.0f, 80.0f, -80.0f, -far, 1.0f};
  const auto [first, second] = two_weights(array(logits.begin(), {5, 2}, mx::float32));
  std::vector<float> a, b;
  for (int row = 0; row < 5; ++row) {
    const auto [one, other] = two_weights_row(logits.data() + 2 * row);
    EXPECT_FLOAT_EQ(one + other, 1.0f);
    a.push_back(one);
    b.push_back(other);
  }
  EXPECT_GT(a[0], b[0]);
  EXPECT_LT(a[1], b[1]);
  EXPECT_TRUE(same(a, first));
  EXPECT_TRUE(same(b, second));
}

}  // namespace
}  // namespace mlxcel
