// The promise of the CPU kernels: a row's logits have the same bits whatever stands beside it. Every
// architecture, every instruction set that runs here, every precision: the same token at every batch width
// from 1 to 17, at the first, a middle and the last place of the batch, after prompts cut in several ways.
// And fused blocks give the bits of the chain of graph nodes that they stand for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/isa/dispatch.h"
#include "kernels/matrix.h"
#include "kernels/phases.h"
#include "network.h"
#include "nn/phases.h"

namespace mlxcel::archtest {
namespace {

using kernels::Isa;
using kernels::Precision;

constexpr int kPrompt = 41;  // more than a page, several windows
constexpr int kWidest = 17;
constexpr int kGroup = 32;

class Setting {
 public:
  Setting(Isa isa, Precision precision)
      : mode_(kernel_mode()), isa_(kernels::isa()), precision_(kernels::precision()) {
    set_kernel_mode(KernelMode::native);
    kernels::set_isa(isa);
    kernels::set_precision(precision);
    kernels::share_everything(true);
  }
  ~Setting() {
    set_kernel_mode(mode_);
    kernels::set_isa(isa_);
    kernels::set_precision(precision_);
    set_fusing(true);
    kernels::share_everything(false);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  KernelMode mode_;
  Isa isa_;
  Precision precision_;
};

struct Form {
  Isa isa;
  Precision precision;
  bool dense;
  bool is_default() const {
    return isa == kernels::available_isas().back() && precision == Precision::high && !dense;
  }
  std::string name() const {
    return fmt::format("{}, {}, {}", kernels::to_string(isa), kernels::to_string(precision),
                       dense ? "dense" : "4-bit");
  }
};

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const Isa isa : kernels::available_isas())
    for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
      all.push_back({isa, precision, false});
      if (precision == Precision::high) all.push_back({isa, precision, true});
    }
  return all;
}

class InvarianceTest : public ::testing::TestWithParam<size_t> {
 protected:
  static const NamedArch& entry() { return arch_table()[GetParam()]; }
  static std::unique_ptr<Model> build(const Form& form) {
    auto source = tiny_source(entry());
    return build_model(tiny_config(entry()), form.dense ? source : quantised(source, kGroup));
  }
};

TEST_P(InvarianceTest, a_token_gives_the_same_bits_at_every_batch_width_and_place) {
  for (const Form& form : forms()) {
    const Setting setting(form.isa, form.precision);
    const auto model = build(form);
    if (model->info().encoder) GTEST_SKIP() << "encoders see whole texts: arch_test has them in company";
    const int vocab = model->info().vocab_size;
    StateStore store(model->layout(), {.kv_dtype = mx::float16, .max_tokens = 4096});
    const auto fed = [&](const Tokens& prompt) {
      RowState row = store.make_row();
      Step step;
      step.add(&row, prompt, Wants::none);
      (void)finish(*model, step);
      return row;
    };
    const RowState row = fed(some_tokens(vocab, kPrompt));
    std::vector<RowState> others;
    for (int i = 0; i < 3; ++i) others.push_back(fed(some_tokens(vocab, 1 + 19 * i, i + 1)));
    const Tokens next = some_tokens(vocab, kWidest, 9);
    const auto answer = [&](int width, int place) {
      std::vector<RowState> rows;
      for (int i = 0; i < width; ++i)
        rows.push_back(i == place ? row.fork() : others[static_cast<size_t>(i) % others.size()].fork());
      Step step;
      for (int i = 0; i < width; ++i) {
        const int32_t token = i == place ? next[0] : next[static_cast<size_t>(i)];
        step.add(&rows[static_cast<size_t>(i)], std::span(&token, 1), Wants::last);
      }
      return finish(*model, step)[static_cast<size_t>(place)];
    };
    const auto want = answer(1, 0);
    // Every width and three places with the best bodies at the default precision; the other forms share the
    // widths where tiles change, since there are dozens of architectures.
    for (int width = 2; width <= kWidest; ++width)
      for (const int place : {0, width / 2, width - 1})
        if (form.is_default() || (width % 5 == 2 && place == width / 2)) {
          ASSERT_EQ(answer(width, place), want) << form.name() << ": row " << place << " of " << width;
        }
  }
}

TEST_P(InvarianceTest, a_prompt_gives_the_same_bits_in_any_chunks) {
  for (const Form& form : forms()) {
    const Setting setting(form.isa, form.precision);
    const auto model = build(form);
    if (model->info().encoder) GTEST_SKIP() << "an encoder sees whole texts only";
    const Tokens tokens = some_tokens(model->info().vocab_size, kPrompt);
    const Rows whole = run(*model, tokens, {}, mx::float16);
    // Tokens that see their whole block are cut where a block ends.
    const Diffusion& diffusion = model->info().diffusion;
    const int block = diffusion.redraws ? 0 : diffusion.block;
    const std::vector<std::vector<int>> cuts =
        block > 1 ? std::vector<std::vector<int>>{{block}, {block, 2 * block}}
                  : std::vector<std::vector<int>>{
                        std::vector<int>(kPrompt, 1), {2, 3, 4, 5, 6, 7, 8}, {13, 17}, {32}};
    for (const std::vector<int>& chunks : cuts)
      if (form.is_default() || chunks.size() < static_cast<size_t>(kPrompt)) {
        ASSERT_EQ(run(*model, tokens, chunks, mx::float16), whole) << form.name();
      }
  }
}

TEST_P(InvarianceTest, fused_blocks_give_the_bits_of_the_chain_they_stand_for) {
  for (const Form& form : forms()) {
    const Setting setting(form.isa, form.precision);
    const auto model = build(form);
    const Tokens tokens = some_tokens(model->info().vocab_size, kPrompt);
    if (model->info().encoder) {
      const Rows fused = run(*model, tokens);
      set_fusing(false);
      ASSERT_EQ(run(*model, tokens), fused) << form.name();
      continue;
    }
    for (const std::vector<int>& chunks : {std::vector<int>{}, {20, 1, 1, 7}}) {
      set_fusing(true);
      const Rows fused = run(*model, tokens, chunks, mx::float16);
      set_fusing(false);
      ASSERT_EQ(run(*model, tokens, chunks, mx::float16), fused) << form.name();
    }
    set_fusing(true);
  }
}

std::string name_of(const ::testing::TestParamInfo<size_t>& info) { return arch_table()[info.param].family; }
INSTANTIATE_TEST_SUITE_P(All, InvarianceTest, ::testing::Range<size_t>(0, arch_table().size()), name_of);

}  // namespace
}  // namespace mlxcel::archtest
