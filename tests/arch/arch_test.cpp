// What every architecture owes the engine, under our kernels and under the plain MLX graph: the same answer
// however its tokens arrive. Under our kernels "the same" means the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "network.h"

namespace mlxcel::archtest {
namespace {

constexpr int kTokens = 45;  // more than a page, several windows

struct Case {
  size_t entry;
  KernelMode mode;
};

class ArchTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    before_ = kernel_mode();
    set_kernel_mode(GetParam().mode);
  }
  void TearDown() override { set_kernel_mode(before_); }

  static const NamedArch& entry() { return arch_table()[GetParam().entry]; }
  static bool native() { return GetParam().mode == KernelMode::native; }
  static std::unique_ptr<Model> build() { return build_model(tiny_config(entry()), tiny_source(entry())); }

  /// Equal bits under our kernels, close under the reference.
  static void expect_same(const Rows& want, const Rows& got, const std::string& how) {
    if (native())
      EXPECT_EQ(want, got) << how << ": largest difference " << distance(want, got);
    else
      EXPECT_LE(distance(want, got), 2e-3f) << how;
  }

 private:
  KernelMode before_ = KernelMode::native;
};

/// Whether blocks of tokens see each other: a step then ends where a block does, and these tests cut
/// elsewhere.
bool sees_blocks(const Model& model) {
  return model.info().diffusion.block > 1 && !model.info().diffusion.redraws;
}
constexpr const char* kWholeBlocks = "blocks of tokens see each other: a step takes whole ones";

Rows from(const Rows& rows, size_t first) {
  return {rows.begin() + static_cast<ptrdiff_t>(first), rows.end()};
}

TEST_P(ArchTest, gives_finite_answers_that_differ_between_tokens) {
  const auto model = build();
  const Rows rows = run(*model, some_tokens(model->info().vocab_size, kTokens));
  ASSERT_EQ(rows.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(rows[0].size(),
            static_cast<size_t>(model->info().encoder ? model->info().hidden : model->info().vocab_size));
  EXPECT_EQ(distance(rows, rows), 0.0f);  // not NaN
  EXPECT_NE(rows[3], rows[4]);
}

TEST_P(ArchTest, chunks_of_any_size_give_what_one_prefill_gives) {
  const auto model = build();
  if (sees_blocks(*model)) GTEST_SKIP() << kWholeBlocks;
  if (model->info().encoder) GTEST_SKIP() << "an encoder sees whole texts only";
  const Tokens tokens = some_tokens(model->info().vocab_size, kTokens);
  const Rows whole = run(*model, tokens);
  expect_same(whole, run(*model, tokens, std::vector<int>(kTokens, 1)), "token by token");
  expect_same(whole, run(*model, tokens, {20}), "two chunks");
  expect_same(whole, run(*model, tokens, {1, 7, 2, 30, 1}), "uneven chunks");
  expect_same(whole, run(*model, tokens, {32, 8}), "cut at a page");
}

TEST_P(ArchTest, chunks_of_whole_blocks_give_what_one_prefill_gives) {
  const auto model = build();
  const int block = model->info().diffusion.block;
  if (!sees_blocks(*model)) GTEST_SKIP() << "tokens see what is before them only";
  const Tokens tokens = some_tokens(model->info().vocab_size, 9 * block);
  const Rows whole = run(*model, tokens);
  expect_same(whole, run(*model, tokens, std::vector<int>(9, block)), "block by block");
  expect_same(whole, run(*model, tokens, {2 * block, block, 4 * block}), "uneven chunks");
  Tokens other = tokens;
  other[static_cast<size_t>(2 * block - 1)] =
      (other[static_cast<size_t>(2 * block - 1)] + 1) % model->info().vocab_size;
  const Rows changed = run(*model, other);
  EXPECT_NE(whole[static_cast<size_t>(block)], changed[static_cast<size_t>(block)])
      << "a block's first token sees its last";
  EXPECT_EQ(whole[static_cast<size_t>(block - 1)], changed[static_cast<size_t>(block - 1)])
      << "and nothing behind it";
}

TEST_P(ArchTest, a_row_gives_the_same_alone_and_in_company) {
  const auto model = build();
  if (sees_blocks(*model)) GTEST_SKIP() << kWholeBlocks;
  const int vocab = model->info().vocab_size;
  const std::vector<Tokens> texts = {some_tokens(vocab, 3, 1), some_tokens(vocab, kTokens, 2),
                                     some_tokens(vocab, 17, 3), some_tokens(vocab, 1, 4)};
  if (model->info().encoder) {
    Step step;
    for (const auto& text : texts) step.add(nullptr, text, Wants::all);
    const Rows together = finish(*model, step);
    size_t at = 0;
    for (const auto& text : texts) {
      expect_same(run(*model, text),
                  Rows(together.begin() + static_cast<ptrdiff_t>(at),
                       together.begin() + static_cast<ptrdiff_t>(at + text.size())),
                  "row");
      at += text.size();
    }
    return;
  }
  // Mixed steps: prompts at different points beside rows that decode, until all texts are used up.
  StateStore store(model->layout(), {.kv_dtype = mx::float32, .max_tokens = 1024});
  std::vector<RowState> rows;
  for (size_t i = 0; i < texts.size(); ++i) rows.push_back(store.make_row(static_cast<int>(texts[i].size())));
  std::vector<Rows> answers(texts.size());
  std::vector<size_t> used(texts.size(), 0);
  const std::vector<std::vector<size_t>> chunks = {
      {2, 30, 0, 1}, {1, 1, 9, 0}, {0, 5, 1, 0}, {0, 1, 7, 0}, {0, 8, 0, 0}};
  for (const auto& sizes : chunks) {
    Step step;
    for (size_t i = 0; i < texts.size(); ++i)
      if (sizes[i] > 0) step.add(&rows[i], std::span(texts[i]).subspan(used[i], sizes[i]), Wants::all);
    const Rows got = finish(*model, step);
    size_t at = 0;
    for (size_t i = 0; i < texts.size(); ++i)
      for (size_t k = 0; k < sizes[i]; ++k) answers[i].push_back(got[at++]);
    for (size_t i = 0; i < texts.size(); ++i) used[i] += sizes[i];
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(used[i], texts[i].size());
    expect_same(run(*model, texts[i]), answers[i], fmt::format("row {}", i));
  }
}

TEST_P(ArchTest, logits_come_for_wanted_tokens_only) {
  const auto model = build();
  if (sees_blocks(*model)) GTEST_SKIP() << kWholeBlocks;
  const Tokens a = some_tokens(model->info().vocab_size, 9), b = some_tokens(model->info().vocab_size, 6, 1);
  if (model->info().encoder) {
    Step step;
    step.add(nullptr, a, Wants::all);
    step.seal();
    EXPECT_THROW((void)model->logits(step), Error);
    return;
  }
  StateStore store(model->layout(), {.kv_dtype = mx::float32, .max_tokens = 256});
  RowState first = store.make_row(static_cast<int>(a.size())), second = store.make_row();
  {
    Step step;
    step.add(&first, std::span(a).first(4), Wants::none);
    const Rows nothing = finish(*model, step);
    EXPECT_TRUE(nothing.empty());
    EXPECT_EQ(first.length(), 4);
  }
  Step step;
  step.add(&first, std::span(a).subspan(4), Wants::last);
  step.add(&second, b, Wants::all);
  const Rows got = finish(*model, step);
  ASSERT_EQ(got.size(), 1 + b.size());
  expect_same({run(*model, a).back()}, {got.front()}, "last of a row whose first chunk wanted nothing");
  expect_same(run(*model, b), from(got, 1), "all of its neighbour");
}

TEST_P(ArchTest, hidden_states_are_those_before_the_head) {
  const auto model = build();
  const Tokens tokens = some_tokens(model->info().vocab_size, 12);
  std::optional<StateStore> store;
  std::optional<RowState> row;
  if (!model->info().encoder) {
    store.emplace(model->layout(), StoreOptions{.kv_dtype = mx::float32, .max_tokens = 64});
    row = store->make_row();
  }
  Step step;
  step.add(row ? &*row : nullptr, tokens, Wants::all);
  step.seal();
  const array hidden = model->hidden(step);
  std::vector<array> all = step.pending();
  all.push_back(hidden);
  mx::eval(all);
  EXPECT_EQ(hidden.shape(), (Shape{12, model->info().hidden}));
}

TEST_P(ArchTest, a_fork_goes_on_as_a_cold_row_would) {
  const auto model = build();
  if (sees_blocks(*model)) GTEST_SKIP() << kWholeBlocks;
  if (model->info().encoder) GTEST_SKIP() << "nothing is remembered";
  const int vocab = model->info().vocab_size;
  const Tokens prefix = some_tokens(vocab, 37), left = some_tokens(vocab, 8, 1),
               right = some_tokens(vocab, 8, 2);
  const auto joined = [&](const Tokens& tail) {
    Tokens all = prefix;
    all.insert(all.end(), tail.begin(), tail.end());
    return all;
  };
  StateStore store(model->layout(), {.kv_dtype = mx::float32, .max_tokens = 512});
  RowState row = store.make_row(static_cast<int>(prefix.size() + left.size()));
  {
    Step step;
    step.add(&row, prefix, Wants::none);
    (void)finish(*model, step);
  }
  RowState fork = row.fork();
  Step step;  // both go on in one step, from shared pages
  step.add(&row, left, Wants::all);
  step.add(&fork, right, Wants::all);
  const Rows got = finish(*model, step);
  expect_same(from(run(*model, joined(left)), prefix.size()), {got.begin(), got.begin() + 8}, "the row");
  expect_same(from(run(*model, joined(right)), prefix.size()), from(got, 8), "its fork");
}

TEST_P(ArchTest, tokens_taken_back_leave_no_trace) {
  const auto model = build();
  if (model->info().encoder) GTEST_SKIP() << "nothing is remembered";
  const Tokens tokens = some_tokens(model->info().vocab_size, 40),
               wrong = some_tokens(model->info().vocab_size, 6, 5);
  StateStore store(model->layout(), {.kv_dtype = mx::float32, .max_tokens = 512});
  RowState row = store.make_row(static_cast<int>(tokens.size()));
  const auto feed = [&](std::span<const int32_t> ids) {
    Step step;
    step.add(&row, ids, Wants::all);
    return finish(*model, step);
  };
  (void)feed(std::span(tokens).first(30));
  const bool recurrent = !model->layout().recurrent().empty();
  const RecurrentSnapshot snapshot = row.snapshot();
  (void)feed(wrong);
  if (recurrent) {
    EXPECT_THROW(row.truncate(30), Error);
    row.restore(snapshot);
  } else {
    row.truncate(30);
  }
  expect_same(from(run(*model, tokens), 30), feed(std::span(tokens).subspan(30)), "after a rollback");
}

TEST_P(ArchTest, each_kv_type_is_as_sure_as_it_is_wide) {
  const auto model = build();
  if (model->layout().kv().empty()) GTEST_SKIP() << "keeps no keys and values";
  const Tokens tokens = some_tokens(model->info().vocab_size, kTokens);
  const Rows wide = run(*model, tokens, {}, mx::float32);
  struct Type {
    mx::Dtype dtype;
    const char* name;
    float tolerance;
  };
  for (const Type& type : {Type{mx::float16, "f16", 0.05f}, Type{mx::bfloat16, "bf16", 0.4f}}) {
    const Rows whole = run(*model, tokens, {}, type.dtype);
    // A choice of experts may hang on the rounding, and then a token's answer is another one.
    const bool chooses = entry().arch.tiny.find("experts") != std::string::npos;
    size_t beyond = 0;
    for (size_t i = 0; i < wide.size(); ++i)
      beyond += distance({wide[i]}, {whole[i]}) > type.tolerance ? 1 : 0;
    // In blocks, those of its neighbours on both sides with it.
    const size_t most = !chooses ? 0 : sees_blocks(*model) ? wide.size() * 3 / 4 : wide.size() / 4;
    EXPECT_LE(beyond, most) << type.name << ": " << distance(wide, whole);
    EXPECT_NE(wide, whole) << type.name << " was not in force";
    if (!sees_blocks(*model))
      expect_same(whole, run(*model, tokens, {13, 1, 1, 20}, type.dtype),
                  fmt::format("{} in chunks", type.name));
  }
}

TEST_P(ArchTest, a_4_bit_build_agrees_with_its_dequantised_build) {
  for (const int group : {32, 64}) {
    const auto source = quantised(tiny_source(entry()), group);
    const auto small = build_model(tiny_config(entry()), source);
    const auto dense = build_model(tiny_config(entry()), dequantised_source(source));
    EXPECT_EQ(small->info().weights_label, fmt::format("affine 4-bit g{}", group));
    EXPECT_LT(small->info().weight_bytes, dense->info().weight_bytes / 2);
    const Tokens tokens = some_tokens(small->info().vocab_size, kTokens);
    const Rows want = run(*dense, tokens), got = run(*small, tokens);
    // Keys and values of one family jump by whole steps.
    EXPECT_LE(distance(want, got), entry().family == "afm7" ? 0.1f : 0.02f) << "group " << group;
    if (!small->info().encoder && !sees_blocks(*small))
      expect_same(got, run(*small, tokens, {1, 30, 1, 1}), "4-bit in chunks");
  }
}

TEST_P(ArchTest, a_token_outside_the_vocabulary_is_refused) {
  const auto model = build();
  StateStore store(model->layout(), {.kv_dtype = mx::float32, .max_tokens = 64});
  for (const int32_t bad : {-1, model->info().vocab_size}) {
    RowState row = store.make_row();
    Step step;
    step.add(model->info().encoder ? nullptr : &row, Tokens{1, bad, 2}, Wants::all);
    step.seal();
    try {
      (void)model->hidden(step);
      FAIL() << "token " << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
      EXPECT_NE(std::string(error.what()).find(std::to_string(bad)), std::string::npos) << error.what();
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (size_t i = 0; i < arch_table().size(); ++i)
    for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) list.push_back({i, mode});
  return list;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return arch_table()[info.param.entry].family +
         (info.param.mode == KernelMode::native ? "_native" : "_reference");
}

INSTANTIATE_TEST_SUITE_P(Every, ArchTest, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace mlxcel::archtest
