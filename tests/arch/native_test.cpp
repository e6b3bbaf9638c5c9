// No product, convolution or attention of any architecture is left to MLX's own CPU code, which is two to
// three orders of magnitude slower than ours: the graph of a step is searched for such nodes, of weights in 4
// bits and dense.
#include <gtest/gtest.h>
#include <mlx/primitives.h>
#include <mlx/transforms.h>

#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "kernels/matrix.h"
#include "network.h"
#include "nn/phases.h"

namespace mlxcel::archtest {
namespace {

/// Names of MLX's operations that multiply matrices or convolve.
bool is_product(const std::string& name) {
  static const std::set<std::string> names = {"Matmul",
                                              "AddMM",
                                              "BlockMaskedMM",
                                              "GatherMM",
                                              "SegmentedMM",
                                              "QuantizedMatmul",
                                              "QQMatmul",
                                              "GatherQMM",
                                              "GatherQQMM",
                                              "Convolution",
                                              "ScaledDotProductAttention"};
  return names.contains(name);
}

/// Names of all nodes that arrays hang on.
std::multiset<std::string> nodes_of(std::vector<array> open) {
  std::multiset<std::string> names;
  std::unordered_set<std::uintptr_t> seen;
  while (!open.empty()) {
    const array one = open.back();
    open.pop_back();
    if (!seen.insert(one.id()).second || !one.has_primitive()) continue;
    names.insert(one.primitive().name());
    open.insert(open.end(), one.inputs().begin(), one.inputs().end());
  }
  return names;
}

class NativeTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    set_kernel_mode(KernelMode::native);
    set_fusing(false);  // as nodes: what a program holds is ours
  }
  void TearDown() override {
    set_kernel_mode(mode_);
    set_fusing(true);
  }

 private:
  KernelMode mode_ = kernel_mode();
};

TEST_P(NativeTest, nothing_that_multiplies_is_left_to_mlx) {
  const NamedArch& entry = arch_table()[GetParam()];
  for (const bool dense : {false, true}) {
    const auto source = tiny_source(entry);
    const auto model = build_model(tiny_config(entry), dense ? source : quantised(source, 32));
    StateStore store(model->layout(), {.kv_dtype = mx::float16, .max_tokens = 1024});
    RowState row = store.make_row(), other = store.make_row();
    // A prompt alone, one beside a token, a token alone.
    const Tokens prompt = some_tokens(model->info().vocab_size, 41);
    size_t ours = 0;
    for (const std::vector<int>& counts : {std::vector<int>{41}, {1, 41}, {1}}) {
      Step step;
      step.add(&row, std::span(prompt).first(static_cast<size_t>(counts[0])), Wants::all);
      if (counts.size() > 1) step.add(&other, prompt, Wants::last);
      step.seal();
      const bool encoder = model->info().encoder;
      std::vector<array> outputs = step.pending();
      outputs.push_back(encoder ? model->hidden(step) : model->logits(step));
      const auto late = step.pending();
      outputs.insert(outputs.end(), late.begin(), late.end());
      const auto names = nodes_of(outputs);
      ours += names.count("matmul");
      for (const std::string& name : names)
        EXPECT_FALSE(is_product(name))
            << name << " in a step of " << counts.size() << " rows, " << (dense ? "dense" : "4-bit");
      mx::eval(outputs);
      step.commit();
      if (encoder) break;
    }
    EXPECT_GT(ours, 0u) << "the graph was not seen";
  }
}

/// The families that are asked for most: each a single program, which waits for no node of MLX's graph and is
/// done before anything is evaluated.
const char* const kCommon[] = {"llama",       "qwen2",    "qwen3",     "qwen3_moe", "gemma3_text",
                               "gpt_oss",     "glm4_moe", "phi3",      "olmo2",     "smollm3",
                               "deepseek_v3", "gpt2",     "starcoder2"};

class CommonTest : public NativeTest {};

TEST_P(CommonTest, a_step_is_done_when_it_is_built) {
  const NamedArch& entry = arch_table()[GetParam()];
  set_fusing(true);
  const auto model = build_model(tiny_config(entry), quantised(tiny_source(entry), 32));
  StateStore store(model->layout(), {.kv_dtype = mx::float16, .max_tokens = 1024});
  RowState row = store.make_row();
  const Tokens prompt = some_tokens(model->info().vocab_size, 41);
  for (const size_t count : {size_t{41}, size_t{1}}) {
    Step step;
    step.add(&row, std::span(prompt).first(count), Wants::last);
    step.seal();
    const array logits = model->logits(step);
    EXPECT_TRUE(logits.is_available()) << count << " tokens";
    auto outputs = step.pending();
    outputs.push_back(logits);
    mx::eval(outputs);
    step.commit();
  }
}

std::vector<size_t> places_of_common() {
  std::vector<size_t> places;
  for (const char* const name : kCommon)
    for (size_t i = 0; i < arch_table().size(); ++i)
      if (arch_table()[i].family == name) places.push_back(i);
  return places;
}
TEST(Common, each_is_a_family) { EXPECT_EQ(places_of_common().size(), std::size(kCommon)); }

std::string name_of(const ::testing::TestParamInfo<size_t>& info) { return arch_table()[info.param].family; }
INSTANTIATE_TEST_SUITE_P(All, NativeTest, ::testing::Range<size_t>(0, arch_table().size()), name_of);

INSTANTIATE_TEST_SUITE_P(All, CommonTest, ::testing::ValuesIn(places_of_common()), name_of);

}  // namespace
}  // namespace mlxcel::archtest
