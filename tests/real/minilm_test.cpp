// all-MiniLM-L6-v2 against sentence-transformers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "real_model.h"
#include "text/tokenizer.h"

namespace mlxcel::real {
namespace {

using Json = nlohmann::json;

Json fixture() {
  std::ifstream file(MLXCEL_SOURCE_DIR "/tests/real/data/minilm_vectors.json");
  return Json::parse(file);
}

/// The mean of rows [first, first + count), of length one.
std::vector<double> pooled(const std::vector<std::vector<float>>& hidden, size_t first, size_t count) {
  std::vector<double> mean(hidden[0].size(), 0.0);
  for (size_t i = first; i < first + count; ++i)
    for (size_t j = 0; j < mean.size(); ++j) mean[j] += hidden[i][j] / static_cast<double>(count);
  double length = 0;
  for (const double x : mean) length += x * x;
  for (double& x : mean) x /= std::sqrt(length);
  return mean;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    worst = std::isfinite(difference) ? std::max(worst, difference) : HUGE_VAL;
  }
  return worst;
}

class MiniLm : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    const auto found = find(kMiniLm);
    if (!found)
      GTEST_SKIP() << "all-MiniLM-L6-v2 is not in the model store: tests/real/fetch.sh puts it there";
    path_ = *found;
  }
  std::filesystem::path path_;
};

TEST_P(MiniLm, vectors_are_sentence_transformers) {
  const Json reference = fixture();
  Loaded loaded(path_, GetParam());
  ASSERT_TRUE(loaded.model().info().encoder);
  std::vector<std::vector<int32_t>> rows;
  for (const auto& entry : reference.at("rows")) rows.push_back(entry.at("ids"));
  if (GetParam().mode == KernelMode::reference) rows.pop_back();  // a long text takes MLX on a CPU too long
  const auto hidden = loaded.hidden(rows);
  double worst = 0;
  size_t first = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& entry = reference.at("rows")[i];
    const auto ours = pooled(hidden, first, rows[i].size());
    const double found = largest_difference(ours, entry.at("vector").get<std::vector<double>>());
    EXPECT_LE(found, 1e-5) << entry.at("text");
    worst = std::max(worst, found);
    if (i % 4 == 0) {  // alone as among others
      const auto alone = pooled(loaded.hidden({rows[i]}), 0, rows[i].size());
      EXPECT_LE(largest_difference(alone, ours), GetParam().mode == KernelMode::native ? 0.0 : 1e-5);
    }
    first += rows[i].size();
  }
  fmt::print("[ measured ] MiniLM {} {}: {:.1e}\n",
             GetParam().mode == KernelMode::native ? "native" : "reference",
             kernels::to_string(GetParam().precision), worst);
}

INSTANTIATE_TEST_SUITE_P(Forms, MiniLm,
                         ::testing::Values(Setup{}, Setup{.precision = kernels::Precision::exact},
                                           Setup{.mode = KernelMode::reference}),
                         [](const auto& parameter) {
                           const Setup& setup = parameter.param;
                           return setup.mode == KernelMode::reference
                                      ? std::string("reference")
                                      : std::string(kernels::to_string(setup.precision));
                         });

TEST(MiniLmTokenizer, ids_are_the_reference_s) {
  const auto found = find(kMiniLm);
  if (!found) GTEST_SKIP() << "all-MiniLM-L6-v2 is not in the model store: tests/real/fetch.sh puts it there";
  const auto tokenizer = Tokenizer::load(open_checkpoint(*found));
  EXPECT_EQ(tokenizer->max_length(), 256);
  for (const auto& entry : fixture().at("rows")) {
    const auto want = entry.at("ids").get<std::vector<TokenId>>();
    if (want.size() >= 256) continue;  // cut to the limit
    EXPECT_EQ(tokenizer->encode(entry.at("text").get<std::string>(), true), want) << entry.at("text");
  }
}

}  // namespace
}  // namespace mlxcel::real
