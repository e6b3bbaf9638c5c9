// Late products give the bits of the nodes that they stand for, whatever the choice and whoever runs which
// piece; one token's choice is what a batch of them gives.
#include "kernels/experts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/isa/dispatch.h"
#include "kernels/packed.h"
#include "kernels/testdata.h"

namespace mlxcel::kernels {
namespace {

Weight coded(const Shape& shape, int bits, uint64_t seed) {
  const auto planes = mx::quantize(normal(shape, seed), 32, bits);
  return {"w",
          shape,
          evaluated(planes[0]),
          evaluated(mx::astype(planes[1], mx::float16)),
          evaluated(mx::astype(planes[2], mx::float16)),
          QuantFormat{QuantMode::affine, bits, 32}};
}

Weight dense(const Shape& shape, uint64_t seed) {
  return {"w",          shape,        evaluated(mx::astype(normal(shape, seed), mx::bfloat16)),
          std::nullopt, std::nullopt, std::nullopt};
}

/// bits 16: dense.
Matrix bank(const Shape& shape, int bits, uint64_t seed, bool gated) {
  const auto one = [&](uint64_t s) { return bits == 16 ? dense(shape, s) : coded(shape, bits, s); };
  if (gated) return Matrix::gated(one(seed), one(seed + 1));
  const Weight w = one(seed);
  return Matrix::concatenated(std::span(&w, 1));
}

enum class Order { shared, forwards, backwards };

/// [tokens * k, columns of the result]
std::vector<float> late(const Matrix& weights, Activation activation, const array& x,
                        const std::vector<int>& chosen, int k, bool own, Order order) {
  const int count = static_cast<int>(chosen.size());
  LateProduct product(weights.storage(), activation, count, count == k && !own);
  std::vector<float> out(static_cast<size_t>(count) * static_cast<size_t>(product.columns()),
                         std::numeric_limits<float>::quiet_NaN());
  std::vector<float> panel(product.panel_floats(), std::numeric_limits<float>::quiet_NaN());
  ExpertDeal dealt;
  dealt.deal(chosen.data(), count, k, weights.experts());
  product.set(x.data<float>(), weights.columns(), dealt, own ? dealt.choices : dealt.tokens, out.data(),
              panel.data());
  const int pieces = product.pieces();
  const auto each = [&](auto&& part) {
    if (order == Order::shared)
      run_tasks(pieces, 1, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) part(i);
      });
    else
      for (int i = 0; i < pieces; ++i) part(order == Order::forwards ? i : pieces - 1 - i);
  };
  if (product.panel_floats() > 0) each([&](int i) { product.prepare(i); });
  each([&](int i) { product.multiply(i); });
  return out;
}

void expect_bits(const std::vector<float>& got, const array& want, const std::string& what) {
  const array whole = evaluated(want);
  ASSERT_EQ(got.size(), whole.size()) << what;
  ASSERT_EQ(std::memcmp(got.data(), whole.data<float>(), got.size() * sizeof(float)), 0) << what;
}

std::vector<int> choices(int tokens, int k, int experts, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> order(static_cast<size_t>(experts)), chosen;
  std::iota(order.begin(), order.end(), 0);
  for (int t = 0; t < tokens; ++t) {
    std::shuffle(order.begin(), order.end(), random);
    chosen.insert(chosen.end(), order.begin(), order.begin() + k);
  }
  return chosen;
}

struct Setting {
  Isa isa = kernels::isa();
  Precision precision = kernels::precision();
  Setting() { share_everything(true); }
  ~Setting() {
    share_everything(false);
    set_isa(isa);
    set_precision(precision);
  }
};

/// `all`: every number of rows that decoding and drafts have, every number of experts.
void expect_the_nodes_bits(int bits, Precision precision, bool all) {
  set_precision(precision);
  for (const int experts : all ? std::vector<int>{1, 6} : std::vector<int>{6})
    for (const auto& [rows, columns] : {std::pair(7, 96), std::pair(40, 640)}) {
      const Matrix plain = bank({experts, rows, columns}, bits, 10, false),
                   gated = bank({experts, rows, columns}, bits, 20, true);
      for (int tokens = 1; tokens <= 16; tokens += all ? 1 : 7)
        for (const int k : {1, 3, 6}) {
          if (k > experts) continue;
          const auto chosen = choices(tokens, k, experts, static_cast<unsigned>(tokens + 100 * k));
          const array ids(chosen.begin(), {tokens, k}, mx::int32);
          const array x = normal({tokens, columns}, 3), own = normal({tokens, k, columns}, 4);
          const auto order = static_cast<Order>(tokens % 3);
          const std::string what = fmt::format("{} bits, {}, {} experts [{}, {}], {} tokens, {} each", bits,
                                               to_string(precision), experts, rows, columns, tokens, k);
          expect_bits(late(plain, Activation::none, x, chosen, k, false, order), gather_matmul(x, plain, ids),
                      what);
          expect_bits(late(plain, Activation::none, own, chosen, k, true, order),
                      gather_matmul(own, plain, ids), what + ", own rows");
          expect_bits(late(gated, Activation::silu, x, chosen, k, false, order),
                      gather_gated_matmul(x, gated, ids, Activation::silu), what + ", gated");
        }
    }
}

TEST(Experts, LateProductsGiveTheBitsOfTheirNodes) {
  const Setting setting;
  for (const Isa set : available_isas()) {
    set_isa(set);
    SCOPED_TRACE(to_string(set));
    for (const int bits : {4, 8, 16})
      for (const Precision precision : {Precision::high, Precision::fast, Precision::exact})
        ASSERT_NO_FATAL_FAILURE(
            expect_the_nodes_bits(bits, precision, bits == 4 && precision == Precision::high));
  }
}

TEST(Experts, ManyRowsAndEveryoneAtOneExpert) {
  const Setting setting;
  const Matrix plain = bank({5, 33, 96}, 4, 30, false);
  for (const int tokens : {17, 150, LateProduct::kMost / 2}) {
    const array x = normal({tokens, 96}, 31);
    std::vector<int> one(static_cast<size_t>(tokens) * 2, 4);
    for (const auto& chosen : {one, choices(tokens, 2, 5, 32)}) {
      const array ids(chosen.begin(), {tokens, 2}, mx::int32);
      for (const Order order : {Order::shared, Order::backwards})
        expect_bits(late(plain, Activation::none, x, chosen, 2, false, order), gather_matmul(x, plain, ids),
                    fmt::format("{} tokens", tokens));
    }
  }
}

TEST(Experts, LateProductsRefuseMoreRowsThanAPanelHolds) {
  const Matrix plain = bank({2, 8, 32}, 4, 40, false);
  EXPECT_THROW(LateProduct(plain.storage(), Activation::none, LateProduct::kMost + 1, false), Error);
  EXPECT_THROW(LateProduct(plain.storage(), Activation::none, 0, false), Error);
}

TEST(Experts, DealtRowsKeepTheirOrder) {
  ExpertDeal dealt;
  for (int round = 0; round < 2; ++round) {  // memory of an earlier deal does not show
    const std::vector<int> chosen{3, 0, 3, 1, 0, 3};
    dealt.deal(chosen.data(), 6, 2, 5);
    EXPECT_EQ(dealt.choices, (std::vector<int>{1, 4, 3, 0, 2, 5}));
    EXPECT_EQ(dealt.tokens, (std::vector<int>{0, 2, 1, 0, 1, 2}));
    ASSERT_EQ(dealt.jobs.size(), 3u);
    const int want[3][3] = {{0, 0, 2}, {1, 2, 1}, {3, 3, 3}};
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(dealt.jobs[j].expert, want[j][0]);
      EXPECT_EQ(dealt.jobs[j].first, want[j][1]);
      EXPECT_EQ(dealt.jobs[j].count, want[j][2]);
    }
    const int alone = 1;
    dealt.deal(&alone, 1, 1, 2);
    ASSERT_EQ(dealt.jobs.size(), 1u);
    EXPECT_EQ(dealt.choices, std::vector<int>{0});
  }
}

TEST(Experts, ARowsChoiceIsThatOfItsNode) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), far = std::numeric_limits<float>::infinity();
  constexpr int kAll = 12, kTokens = 9;
  std::mt19937 random(5);
  std::vector<float> logits(kAll * kTokens);
  std::normal_distribution<float> spread;
  for (float& x : logits) x = spread(random);
  std::fill_n(logits.begin() + kAll, kAll, 0.5f);      // ties
  std::fill_n(logits.begin() + 2 * kAll, kAll, nan);   // nothing to choose from
  std::fill_n(logits.begin() + 3 * kAll, kAll, -far);  // nothing that anyone wants
  logits[4 * kAll + 3] = nan, logits[4 * kAll + 7] = far;
  logits[5 * kAll] = logits[5 * kAll + 11];
  const array all(logits.begin(), {kTokens, kAll}, mx::float32), correction = normal({kAll}, 6);
  for (const Scoring scoring :
       {Scoring::softmax, Scoring::chosen_softmax, Scoring::sigmoid, Scoring::sqrt_softplus})
    for (const int groups : {1, 3})
      for (const int k : {1, 4, kAll})
        for (const bool corrected : {false, true}) {
          if (groups == 3 && k == kAll) continue;
          const RouteForm form{.per_token = k,
                               .scoring = scoring,
                               .groups = groups,
                               .kept_groups = groups == 1 ? 1 : 2,
                               .renormalize = k == 4,
                               .renorm_eps = 1e-20f,
                               .scale = 1.5f};
          const auto [ids, weights] = route(all, corrected ? std::optional(correction) : std::nullopt, form);
          const array numbers = evaluated(ids), shares = evaluated(weights);
          for (int t = 0; t < kTokens; ++t) {
            std::vector<int> chosen(static_cast<size_t>(k), -1);
            std::vector<float> w(static_cast<size_t>(k));
            route_row(form, logits.data() + t * kAll, kAll, corrected ? correction.data<float>() : nullptr,
                      chosen.data(), w.data());
            EXPECT_EQ(std::memcmp(chosen.data(), numbers.data<int>() + t * k, chosen.size() * 4), 0) << t;
            EXPECT_EQ(std::memcmp(w.data(), shares.data<float>() + t * k, w.size() * 4), 0) << t;
            for (const int e : chosen) EXPECT_TRUE(e >= 0 && e < kAll) << t;
          }
        }
}

TEST(Experts, ARowsSumIsThatOfItsNode) {
  for (const int k : {1, 2, 7})
    for (const int width : {1, 16, 45}) {
      const array y = normal({3, k, width}, 50), weights = normal({3, k}, 51);
      std::vector<float> out(static_cast<size_t>(3 * width));
      for (int t = 0; t < 3; ++t)
        weighted_row(y.data<float>() + t * k * width, weights.data<float>() + t * k, k, width,
                     out.data() + t * width);
      expect_bits(out, weighted_sum(y, weights), fmt::format("{} of {}", k, width));
    }
}

}  // namespace
}  // namespace mlxcel::kernels
