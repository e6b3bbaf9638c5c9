// Deliberate faults, each in the parts of a family that has them: every one must move log-probabilities (of
// encoders: hidden states) by more than the goldens' widest tolerance. Self-consistency never sees a wrong
// scale; this proves that a comparison with right numbers does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "network.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {
std::string_view in_force;
}
std::string_view current_fault() { return in_force; }

namespace archtest {
namespace {

constexpr float kWidestTolerance = 5e-3f;

struct Mutant {
  const char* fault;
  std::vector<std::string> families;  // all of those that have such a part
};

const std::vector<std::string> kRotated = {"llama", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "qwen3_5", "lfm2"};
const std::vector<std::string> kDecoders = {"llama", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "gpt2"};
const std::vector<std::string> kWindowed = {"llama", "qwen2", "gemma3_text"};

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> list = {
      {"rope left out", kRotated},
      {"rope backwards", kRotated},
      {"rope pairs the other way", kRotated},
      {"window ignored", kWindowed},
      {"window one too wide", kWindowed},
      {"window one too narrow", kWindowed},
      {"score scale dropped", {"llama", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "gpt2", "bert"}},
      {"query heads reversed", kDecoders},
      {"qk norm left out", {"qwen3", "qwen3_moe", "gemma3_text", "qwen3_5", "lfm2"}},
      {"bias dropped", {"llama", "qwen2", "gpt2", "bert"}},
      {"residual dropped", {"llama", "qwen2", "qwen3", "qwen3_moe", "gpt2", "bert"}},
      {"gate and up swapped", kRotated},
      {"activation of another kind", {"llama", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "gpt2"}},
      {"norm eps dropped", {"llama"}},
      {"norm offset dropped", {"gemma3_text"}},
      {"norm after sublayer left out", {"gemma3_text"}},
      {"embedding scale dropped", {"gemma3_text"}},
      {"layer norm bias dropped", {"gpt2", "bert"}},
      {"layer norm as rms norm", {"gpt2", "bert"}},
      {"learned positions shifted", {"gpt2", "bert"}},
      {"expert weights renormalised wrongly", {"qwen3_moe"}},
      {"expert weights dropped", {"qwen3_moe"}},
      {"gated norm over the full width", {"mamba2"}},
      {"memory never fades", {"qwen3_5"}},
      {"delta rule without beta", {"qwen3_5"}},
      {"delta rule without correction", {"qwen3_5"}},
      {"output gate left out", {"qwen3_5"}},
      {"gates of the convolution swapped", {"lfm2"}},
  };
  return list;
}

class MutantTest : public ::testing::TestWithParam<size_t> {};

TEST_P(MutantTest, is_caught) {
  const Mutant& mutant = mutants()[GetParam()];
  int tried = 0;
  for (const NamedArch& entry : arch_table()) {
    if (std::find(mutant.families.begin(), mutant.families.end(), entry.family) == mutant.families.end())
      continue;
    ++tried;
    const auto answers = [&](std::string_view fault) {
      in_force = fault;  // some faults act while a model is built, others while it runs
      const auto model = build_model(tiny_config(entry), tiny_source(entry));
      Rows rows = run(*model, some_tokens(model->info().vocab_size, 40));
      in_force = {};
      return std::pair(std::move(rows), model->info().encoder);
    };
    const auto [right, encoder] = answers("");
    const auto [wrong, same] = answers(mutant.fault);
    const float moved = encoder ? distance(right, wrong) : log_distance(right, wrong);
    EXPECT_GT(moved, 4 * kWidestTolerance) << entry.family << ": \"" << mutant.fault << "\" goes unseen";
  }
  if (tried == 0) GTEST_SKIP() << "no architecture has this part yet";
}

std::vector<size_t> indices() {
  std::vector<size_t> list;
  for (size_t i = 0; i < mutants().size(); ++i) list.push_back(i);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Each, MutantTest, ::testing::ValuesIn(indices()), [](const auto& parameter) {
  std::string name = mutants()[parameter.param].fault;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(Mutants, no_fault_is_no_difference) {
  for (const NamedArch& entry : arch_table()) {
    const auto once = build_model(tiny_config(entry), tiny_source(entry));
    const auto twice = build_model(tiny_config(entry), tiny_source(entry));
    const Tokens tokens = some_tokens(once->info().vocab_size, 20);
    EXPECT_EQ(run(*once, tokens), run(*twice, tokens)) << entry.family;
  }
}

TEST(Mutants, every_architecture_has_several) {
  for (const NamedArch& entry : arch_table()) {
    const auto count = std::count_if(mutants().begin(), mutants().end(), [&](const Mutant& mutant) {
      return std::find(mutant.families.begin(), mutant.families.end(), entry.family) != mutant.families.end();
    });
    EXPECT_GE(count, 1) << entry.family << " is in no mutant's list";
  }
}

}  // namespace
}  // namespace archtest
}  // namespace mlxcel
