#include "kernels/route.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {
namespace {

array normals(Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  size_t count = 1;
  for (const int n : shape) count *= static_cast<size_t>(n);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return array(v.begin(), std::move(shape), mx::float32);
}

struct Choice {
  std::vector<int> experts;
  std::vector<float> weights;
};

Choice chosen(const array& logits, const std::optional<array>& correction, const RouteForm& form,
              KernelMode mode) {
  const KernelMode before = kernel_mode();
  set_kernel_mode(mode);
  auto [experts, weights] = route(logits, correction, form);
  mx::eval(experts, weights);
  set_kernel_mode(before);
  return {{experts.data<int>(), experts.data<int>() + experts.size()},
          {weights.data<float>(), weights.data<float>() + weights.size()}};
}

TEST(Route, AgreesWithThePlainGraph) {
  const array logits = normals({19, 24}, 1), correction = normals({24}, 2);
  for (const Scoring scoring :
       {Scoring::softmax, Scoring::chosen_softmax, Scoring::sigmoid, Scoring::sqrt_softplus})
    for (const int groups : {1, 4})
      for (const GroupScore worth : {GroupScore::best, GroupScore::best_two})
        for (const bool renormalize : {false, true})
          for (const bool corrected : {false, true}) {
            const RouteForm form{.per_token = 5,
                                 .scoring = scoring,
                                 .groups = groups,
                                 .kept_groups = groups == 1 ? 1 : 2,
                                 .group_score = worth,
                                 .renormalize = renormalize,
                                 .renorm_eps = 1e-20f,
                                 .renorm_floor = renormalize ? 0.5f : 0.0f,
                                 .scale = 2.5f};
            const std::optional<array> more = corrected ? std::optional(correction) : std::nullopt;
            const Choice ours = chosen(logits, more, form, KernelMode::native),
                         plain = chosen(logits, more, form, KernelMode::reference);
            EXPECT_EQ(ours.experts, plain.experts);
            for (size_t i = 0; i < ours.weights.size(); ++i)
              ASSERT_NEAR(ours.weights[i], plain.weights[i], 2e-6f);
          }
}

TEST(Route, ATokensChoiceIsItsOwn) {
  const RouteForm form{.per_token = 3, .renormalize = true};
  const array logits = normals({900, 32}, 3);  // enough for every worker
  const Choice all = chosen(logits, std::nullopt, form, KernelMode::native);
  for (const int t : {0, 1, 450, 899}) {
    const Choice one = chosen(mx::slice(logits, {t, 0}, {t + 1, 32}), std::nullopt, form, KernelMode::native);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(one.experts[k], all.experts[static_cast<size_t>(t) * 3 + k]);
      EXPECT_EQ(one.weights[k], all.weights[static_cast<size_t>(t) * 3 + k]);
    }
  }
}

TEST(Route, EqualScoresGoToTheLowerNumber) {
  const Choice c = chosen(mx::zeros({1, 8}), std::nullopt, {.per_token = 3}, KernelMode::native);
  EXPECT_EQ(c.experts, (std::vector<int>{0, 1, 2}));
  EXPECT_FLOAT_EQ(c.weights[0], 0.125f);
}

TEST(Route, NoNumberLeadsOutsideTheExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), far = std::numeric_limits<float>::infinity();
  const std::vector<float> odd{nan, nan, nan, nan, -far, nan, 1.0f, far, nan, -far, nan, 2.0f};
  for (const Scoring scoring :
       {Scoring::softmax, Scoring::chosen_softmax, Scoring::sigmoid, Scoring::sqrt_softplus}) {
    const Choice c =
        chosen(array(odd.begin(), {3, 4}, mx::float32), std::nullopt,
               {.per_token = 2, .scoring = scoring, .groups = 2, .kept_groups = 1}, KernelMode::native);
    for (size_t t = 0; t < 3; ++t) {
      EXPECT_GE(c.experts[2 * t], 0);
      EXPECT_LT(c.experts[2 * t], 4);
      EXPECT_LT(c.experts[2 * t + 1], 4);
      EXPECT_NE(c.experts[2 * t], c.experts[2 * t + 1]);
    }
  }
}

TEST(Route, RefusesNumbersThatDoNotFit) {
  const array logits = normals({2, 8}, 4);
  EXPECT_THROW(route(logits, std::nullopt, {.per_token = 9}), Error);
  EXPECT_THROW(route(logits, std::nullopt, {.per_token = 0}), Error);
  EXPECT_THROW(route(logits, std::nullopt, {.per_token = 5, .groups = 2, .kept_groups = 1}), Error);
  EXPECT_THROW(route(logits, std::nullopt, {.per_token = 1, .groups = 3, .kept_groups = 1}), Error);
  EXPECT_THROW(route(logits, normals({7}, 5), {.per_token = 1}), Error);
}

TEST(WeightedSum, AgreesWithThePlainGraphAndKeepsTokensApart) {
  const array y = normals({33, 3, 70}, 6), weights = normals({33, 3}, 7), residual = normals({33, 70}, 8);
  for (const bool more : {false, true}) {
    const std::optional<array> base = more ? std::optional(residual) : std::nullopt;
    array ours = weighted_sum(y, weights, base);
    mx::eval(ours);
    array plain = mx::sum(mx::multiply(y, mx::expand_dims(weights, -1)), 1);
    if (more) plain = mx::add(residual, plain);
    EXPECT_TRUE(mx::allclose(ours, plain, 1e-5, 1e-5).item<bool>());
    const auto row = [](const array& a, int t) {
      Shape start(a.ndim(), 0), stop = a.shape();
      start[0] = t;
      stop[0] = t + 1;
      return mx::slice(a, start, stop);
    };
    const array alone =
        weighted_sum(row(y, 20), row(weights, 20), more ? std::optional(row(residual, 20)) : std::nullopt);
    EXPECT_TRUE(mx::array_equal(alone, row(ours, 20)).item<bool>());
  }
  EXPECT_THROW(weighted_sum(y, normals({33, 2}, 9)), Error);
}

}  // namespace
}  // namespace mlxcel::kernels
