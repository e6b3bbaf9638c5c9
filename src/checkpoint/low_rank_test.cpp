#include "checkpoint/low_rank.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "checkpoint/formats/test_files.h"
#include "checkpoint/rules.h"
#include "checkpoint/values.h"

namespace mlxcel {
namespace {

using namespace testing_files;

/// Factors of small whole numbers: products and sums are exact.
LowRank factors(int count, int rows, int columns, int rank, int seed) {
  LowRank f{.count = count, .rows = rows, .columns = columns, .rank = rank};
  const auto number = [&](size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(seed) * 3) % 11) - 5.0f;
  };
  f.left.resize(f.members() * static_cast<size_t>(rows) * static_cast<size_t>(rank));
  f.right.resize(f.members() * static_cast<size_t>(rank) * static_cast<size_t>(columns));
  for (size_t i = 0; i < f.left.size(); ++i) f.left[i] = number(i);
  for (size_t i = 0; i < f.right.size(); ++i) f.right[i] = number(i + 5);
  return f;
}

/// Holds the products: what rules make of them is what they must make of the factors.
class Products final : public Source {
 public:
  std::map<std::string, LowRank> all;
  std::set<std::string> untouched;

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, f] : all) out.push_back(name);
    return out;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto found = all.find(name);
    if (found == all.end()) return std::nullopt;
    return WeightInfo{found->second.shape(), mx::float32, std::nullopt, "F32", 4};
  }
  Weight load(const std::string& name) override {
    const LowRank& f = all.at(name);
    auto values = f.product();
    if (untouched.contains(name)) std::fill(values.begin(), values.end(), 0.0f);
    array data = allocated(f.shape(), mx::float32);
    std::memcpy(mutable_bytes(data), values.data(), values.size() * sizeof(float));
    return {name, f.shape(), data, std::nullopt, std::nullopt, std::nullopt};
  }
};

void expect_followed(const std::shared_ptr<Products>& source, const std::vector<Rule>& rules,
                     size_t touched) {
  const auto ruled = apply_rules(source, rules);
  size_t seen = 0;
  for (const auto& name : ruled->names()) {
    const auto got =
        ruled->low_rank(name, [&](const std::string& own, const Shape& shape) -> std::optional<LowRank> {
          EXPECT_EQ(source->all.at(own).shape(), shape);
          if (source->untouched.contains(own)) return std::nullopt;
          return source->all.at(own);
        });
    const Weight want = ruled->load(name);
    const array values = float_values(want);
    const std::vector<float> expected(values.data<float>(), values.data<float>() + values.size());
    if (!got) {
      EXPECT_EQ(expected, std::vector<float>(expected.size(), 0.0f)) << name;
      continue;
    }
    ++seen;
    EXPECT_EQ(got->shape(), want.shape) << name;
    EXPECT_EQ(got->product(), expected) << name;
  }
  EXPECT_EQ(seen, touched);
}

TEST(LowRank, MultipliesOut) {
  const LowRank f{.count = 0, .rows = 2, .columns = 3, .rank = 1, .left = {2, 3}, .right = {1, 10, 100}};
  EXPECT_EQ(f.product(), (std::vector<float>{2, 20, 200, 3, 30, 300}));
}

TEST(LowRank, FollowsEveryRuleOfMatrices) {
  auto source = std::make_shared<Products>();
  source->all["a.qkv.weight"] = factors(0, 12, 5, 2, 1);
  source->all["a.gate.weight"] = factors(0, 6, 4, 3, 2);
  expect_followed(source, {}, 2);
  expect_followed(source, {rename("a.*", "b.*")}, 2);
  expect_followed(source, {split("*.qkv.weight", {"*.q.weight", "*.k.weight", "*.v.weight"}, {6, 4, 2})}, 4);
  expect_followed(source, {split("*.qkv.weight", {"*.q.weight", "*.k.weight"}, {8, 4}, 4)}, 3);
  expect_followed(source, {split_axis(-1, "*.gate.weight", {"*.x.weight", "*.y.weight"}, {1, 3})}, 3);
  expect_followed(source, {deal(0, "*.gate.weight", {"*.g.weight", "*.u.weight"})}, 3);
  expect_followed(source, {transpose("*.gate.weight")}, 2);
  expect_followed(source, {unflatten("*.gate.weight", 3)}, 2);
  expect_followed(source, {drop("*.gate.weight")}, 1);
}

TEST(LowRank, FollowsHeadsOfLatentAttention) {
  auto source = std::make_shared<Products>();
  source->all["a.kv_b_proj.weight"] = factors(0, 3 * (4 + 2), 7, 2, 4);
  expect_followed(source, heads_of_kv_b(3, 4, 2), 2);
}

TEST(LowRank, FollowsExperts) {
  auto source = std::make_shared<Products>();
  for (int e = 0; e < 3; ++e)
    source->all["mlp.experts." + std::to_string(e) + ".up.weight"] =
        factors(0, 4, 6, e + 1, e);  // ranks differ
  expect_followed(source, {stack("mlp.experts.#.up.weight", "mlp.bank.up.weight")}, 1);
  source->untouched.insert("mlp.experts.1.up.weight");
  expect_followed(source, {stack("mlp.experts.#.up.weight", "mlp.bank.up.weight")}, 1);
  for (const char* e : {"0", "2"}) source->untouched.insert(std::string("mlp.experts.") + e + ".up.weight");
  expect_followed(source, {stack("mlp.experts.#.up.weight", "mlp.bank.up.weight")}, 0);

  auto banks = std::make_shared<Products>();
  banks->all["mlp.gate_up.weight"] = factors(4, 6, 5, 2, 9);
  expect_followed(banks, {split_axis(-2, "mlp.gate_up.weight", {"mlp.gate.weight", "mlp.up.weight"})}, 2);
  expect_followed(banks, {deal(-2, "mlp.gate_up.weight", {"mlp.gate.weight", "mlp.up.weight"})}, 2);
  expect_followed(banks, {transpose("mlp.gate_up.weight")}, 1);
  expect_followed(banks, {split("mlp.gate_up.weight", {"mlp.a.weight", "mlp.b.weight"}, {1, 3})}, 2);
}

TEST(LowRank, RefusesWhatLeavesNoThinFactors) {
  auto banks = std::make_shared<Products>();
  banks->all["bank.weight"] = factors(4, 6, 5, 2, 9);
  const auto ruled = apply_rules(banks, {unflatten("bank.weight", 2)});
  expect_error(
      [&] {
        ruled->low_rank("bank.weight", [&](const std::string& name, const Shape&) {
          return std::optional(banks->all.at(name));
        });
      },
      ErrorKind::unsupported, {"cannot follow"});
}

}  // namespace
}  // namespace mlxcel
