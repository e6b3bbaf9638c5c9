// Every golden through every form of the kernels, whole, in chunks and beside other rows; every spelling of
// its config; and every mutant, which must be told apart.
#include "golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/matrix.h"
#include "models/arch.h"

namespace mlxcel::golden {
namespace {

using kernels::Precision;

struct Form {
  const char* name;
  KernelMode mode;
  Precision precision;
  float tolerance;  // on log-probabilities above -10
};

constexpr float kHiddenTolerance = 1e-4f;
const Form kForms[] = {
    {"native_exact", KernelMode::native, Precision::exact, 2e-3f},
    {"native_high", KernelMode::native, Precision::high, 5e-3f},
    {"reference", KernelMode::reference, Precision::exact, 2e-3f},
};

/// Puts kernel mode and precision back when a test ends.
class Setting {
 public:
  explicit Setting(const Form& form) : mode_(kernel_mode()), precision_(kernels::precision()) {
    set_kernel_mode(form.mode);
    kernels::set_precision(form.precision);
  }
  ~Setting() {
    set_kernel_mode(mode_);
    kernels::set_precision(precision_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  KernelMode mode_;
  Precision precision_;
};

float tolerance(const Golden& golden, const Form& form) {
  return golden.encoder ? kHiddenTolerance : form.tolerance;
}

/// The largest distance seen, by family and form; printed at the end.
std::map<std::string, std::map<std::string, float>>& measured() {
  static std::map<std::string, std::map<std::string, float>> table;
  return table;
}

class Report : public ::testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [family, forms] : measured()) {
      std::string line;
      for (const auto& [form, value] : forms) line += fmt::format("  {} {:.1e}", form, value);
      fmt::print("[ measured ] {:12}{}\n", family, line);
    }
  }
};
[[maybe_unused]] const auto* const kReport = ::testing::AddGlobalTestEnvironment(new Report);

void expect_close(const Golden& golden, const Form& form, const Rows& rows, const std::string& how) {
  const float found = distance(golden, rows);
  float& worst = measured()[golden.model_type][form.name];
  worst = std::max(worst, found);
  EXPECT_LE(found, tolerance(golden, form))
      << golden.name << ", " << form.name << ", " << how << "; reference: " << golden.reference;
}

class GoldenTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Golden& golden() const { return all()[GetParam()]; }
  Rows answers_of(Model& model) const {
    return run(model, golden().tokens, {}, golden().second, golden().draft, golden().prompt);
  }
};

TEST_P(GoldenTest, agrees_with_the_reference) {
  // The neighbours: other tokens of the same vocabulary, shorter and longer than a page.
  const auto& tokens = golden().tokens;
  std::vector<int32_t> short_row(tokens.rbegin(), tokens.rbegin() + 5);
  std::vector<int32_t> long_row(tokens.rbegin(), tokens.rend());
  for (const Form& form : kForms) {
    const Setting setting(form);
    const auto model = build(golden(), golden().config);
    EXPECT_EQ(model->info().encoder, golden().encoder);
    const Rows whole = answers_of(*model);
    expect_close(golden(), form, whole, "one chunk");
    const auto together = run_together(*model, {short_row, tokens, long_row}, {0, golden().second, 0},
                                       {0, golden().draft, golden().draft}, {0, golden().prompt, 0});
    expect_close(golden(), form, together[1], "between two rows");
    Rows chunks;
    if (!golden().encoder) {
      // What sees its whole block is cut where a block ends.
      const Diffusion& diffusion = model->info().diffusion;
      const int block = diffusion.redraws ? 1 : std::max(diffusion.block, 1);
      chunks = run(*model, tokens, {static_cast<int>(tokens.size()) * 2 / 5 / block * block}, 0,
                   golden().draft, golden().prompt);
      expect_close(golden(), form, chunks, "two chunks");
      const std::vector<int> cuts =
          block > 1 ? std::vector{block, block, 2 * block} : std::vector{1, 2, 30, 1, 1};
      expect_close(golden(), form, run(*model, tokens, cuts, 0, golden().draft, golden().prompt),
                   "several chunks");
    }
    if (form.mode == KernelMode::native) {  // the promise is equality, not closeness
      EXPECT_EQ(whole, together[1]) << golden().name << ", " << form.name;
      if (!golden().encoder) {
        EXPECT_EQ(whole, chunks) << golden().name << ", " << form.name;
      }
    }
  }
}

TEST_P(GoldenTest, every_spelling_is_the_same_model) {
  const Form& form = kForms[0];
  const Setting setting(form);
  for (const auto& spelling : golden().spellings) {
    const auto model = build(golden(), spelling);
    expect_close(golden(), form, answers_of(*model), spelling);
  }
}

TEST_P(GoldenTest, every_mutant_is_caught) {
  const Form& form = kForms[0];
  const float widest = golden().encoder ? kHiddenTolerance : kForms[1].tolerance;
  const Setting setting(form);
  EXPECT_FALSE(golden().mutants.empty());
  for (const auto& mutant : golden().mutants) {
    const auto model = build(golden(), mutant.config);
    const float found = distance(golden(), answers_of(*model));
    EXPECT_GT(found, 2 * widest) << golden().name << ": " << mutant.label;
    // The mutant is a model too: it must move as far as the reference moves.
    if (!golden().encoder) {
      EXPECT_NEAR(found, mutant.distance, 2e-3f * mutant.distance + 2 * form.tolerance)
          << golden().name << ": " << mutant.label;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<size_t>& parameter) {
  std::string name = all()[parameter.param].name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<size_t> indices() {
  std::vector<size_t> list(all().size());
  std::iota(list.begin(), list.end(), 0u);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenTest, ::testing::ValuesIn(indices()), test_name);

/// A family may be shown under any of its names.
TEST(GoldenSet, every_architecture_has_two) {
  for (const auto& entry : arch_table()) {
    const auto& types = entry.arch.model_types;
    const auto count = std::count_if(all().begin(), all().end(), [&](const Golden& g) {
      return std::find(types.begin(), types.end(), g.model_type) != types.end();
    });
    EXPECT_GE(count, 2) << "model_type " << types.front();
  }
}

TEST(GoldenSet, none_is_without_an_architecture) {
  for (const Golden& golden : all())
    EXPECT_TRUE(has_arch(golden)) << golden.name << ": " << golden.model_type;
}

TEST(GoldenSet, a_wrong_tensor_is_told_apart) {
  // The comparison itself: another value in one place, a missing row and NaN are all found.
  const Golden& golden = all().front();
  Rows rows(golden.tokens.size(), std::vector<float>(golden.expected[0].size(), 0.0f));
  for (size_t i = 0; i < golden.positions.size(); ++i)
    rows[static_cast<size_t>(golden.positions[i])] = golden.expected[i];
  EXPECT_EQ(distance(golden, rows), 0.0f);
  auto& last = rows[static_cast<size_t>(golden.positions.back())];
  const auto top = std::max_element(last.begin(), last.end());
  *top += 0.5f;
  EXPECT_GT(distance(golden, rows), 0.01f);
  *top = std::nanf("");
  EXPECT_TRUE(std::isinf(distance(golden, rows)));
  rows.pop_back();
  EXPECT_TRUE(std::isinf(distance(golden, rows)));
}

}  // namespace
}  // namespace mlxcel::golden
