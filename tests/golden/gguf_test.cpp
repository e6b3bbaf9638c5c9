// Goldens as the GGUF files that llama.cpp's converter makes of them give the same answers: our tables of
// names, keys and changed values undo what it does. What GGUF cannot say is listed with the reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/formats/test_files.h"
#include "checkpoint/rules/gguf_arch.h"
#include "gguf_file.h"
#include "kernels/matrix.h"

namespace mlxcel::golden {
namespace {

const std::vector<const Golden*>& recorded() {
  static const auto list = [] {
    std::vector<const Golden*> found;
    for (const Golden& golden : all())
      if (std::filesystem::exists(gguf_record(golden.name))) found.push_back(&golden);
    return found;
  }();
  return list;
}

class GgufGoldens : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    before_ = kernels::precision();
    kernels::set_precision(kernels::Precision::exact);
  }
  void TearDown() override { kernels::set_precision(before_); }

 private:
  kernels::Precision before_ = {};
};

TEST_P(GgufGoldens, agree_with_the_reference) {
  const Golden& golden = *recorded()[GetParam()];
  const testing_files::Folder folder;
  const auto path = folder.put(golden.name + ".gguf", gguf_golden(golden).bytes);
  const auto model = load_model(open_checkpoint(path));
  EXPECT_LE(distance(golden, run(*model, golden.tokens, {}, golden.second)), golden.encoder ? 1e-4f : 2e-3f);
}

std::vector<size_t> indices() {
  std::vector<size_t> list(recorded().size());
  std::iota(list.begin(), list.end(), size_t{0});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Every, GgufGoldens, ::testing::ValuesIn(indices()), [](const auto& parameter) {
  std::string name = recorded()[parameter.param]->name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GgufRecords, every_golden_has_one_or_a_reason) {
  const GgufReasons reasons = gguf_reasons();
  std::set<std::string> used;
  for (const Golden& golden : all()) {
    const bool record = std::filesystem::exists(gguf_record(golden.name));
    const bool by_name = reasons.names.contains(golden.name),
               by_type = reasons.types.contains(golden.model_type);
    EXPECT_EQ(record + by_name + by_type, 1)
        << golden.name << ": expected a record in tests/golden/gguf, or one entry of its reasons.json";
    if (by_name) used.insert(golden.name);
    if (by_type) used.insert(golden.model_type);
  }
  for (const auto* list : {&reasons.names, &reasons.types})
    for (const auto& [key, reason] : *list) {
      EXPECT_TRUE(used.contains(key)) << key << " has a reason but no golden";
      EXPECT_GT(reason.size(), 10u) << key;
    }
  EXPECT_GT(recorded().size(), 100u);
}

TEST(GgufRecords, every_table_is_seen) {
  std::set<std::string> seen;
  for (const Golden* golden : recorded()) seen.insert(gguf_golden(*golden).architecture);
  for (const GgufArch* arch : gguf_archs())
    EXPECT_TRUE(seen.contains(arch->name)) << "no golden goes through the table of " << arch->name;
}

}  // namespace
}  // namespace mlxcel::golden
