// Adapters over every architecture: every matrix that a part multiplies by takes one, under its published
// name, with what the weights themselves would give if the product were added to them; and whoever shares the
// step is not touched.
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <map>

#include "network.h"
#include "nn/adapter.h"
#include "peft_folder.h"

namespace mlxcel::archtest {
namespace {

constexpr int kTokens = 37;

struct Case {
  size_t entry;
  KernelMode mode;
};

class AdaptersTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    before_ = kernel_mode();
    set_kernel_mode(GetParam().mode);
  }
  void TearDown() override { set_kernel_mode(before_); }
  static const NamedArch& entry() { return arch_table()[GetParam().entry]; }

  /// Once a family.
  static const std::vector<TensorShape>& matrices_of(const Model& model) {
    static std::map<std::string, std::vector<TensorShape>> known;
    const auto found = known.find(entry().family);
    if (found != known.end()) return found->second;
    auto found_now = adaptable(entry(), model);
    // A head whose rows are brought to length one: an adapter stands beside it, changed weights go through
    // that.
    if (entry().family == "bailing_moe")
      std::erase_if(found_now, [](const TensorShape& t) { return t.name == "lm_head.weight"; });
    return known.emplace(entry().family, std::move(found_now)).first->second;
  }
  static AdapterSet set_of(std::vector<AdapterSet::Use> uses) { return {std::move(uses)}; }

  /// One row's answers in a step with others.
  static std::vector<Rows> together(Model& model,
                                    const std::vector<std::pair<Tokens, const AdapterSet*>>& rows) {
    std::optional<StateStore> store;
    std::vector<RowState> states;
    if (!model.info().encoder) {
      store.emplace(model.layout(), StoreOptions{.kv_dtype = mx::float32, .max_tokens = 1024});
      for (const auto& [tokens, set] : rows)
        states.push_back(store->make_row(static_cast<int>(tokens.size())));
    }
    Step step;
    for (size_t i = 0; i < rows.size(); ++i)
      step.add(store ? &states[i] : nullptr, rows[i].first, Wants::all, rows[i].second);
    const Rows all = finish(model, step);
    std::vector<Rows> parts;
    auto at = all.begin();
    for (const auto& [tokens, set] : rows) {
      parts.emplace_back(at, at + static_cast<ptrdiff_t>(tokens.size()));
      at += static_cast<ptrdiff_t>(tokens.size());
    }
    return parts;
  }

 private:
  KernelMode before_ = KernelMode::native;
};

TEST_P(AdaptersTest, an_adapter_gives_what_changed_weights_give) {
  const auto model = build_model(tiny_config(entry()), tiny_source(entry()));
  const auto& matrices = matrices_of(*model);
  ASSERT_FALSE(matrices.empty());
  const PeftFolder folder(matrices, 1);
  const AdapterFiles files = folder.files();
  const AdapterSet set = set_of({{model->adapter(files), 0.75f}});

  // The same products added to the published tensors.
  const auto changed_source =
      changed(tiny_source(entry()), [&](const std::string& name, std::vector<float>& values) {
        for (const TensorShape& m : matrices) {
          if (m.name != name) continue;
          const auto product = files.of(name, m.shape).value().product();
          for (size_t i = 0; i < values.size(); ++i) values[i] += 0.75f * product[i];
        }
      });
  const auto merged = build_model(tiny_config(entry()), changed_source);
  const auto baked = build_model(tiny_config(entry()), tiny_source(entry()),
                                 LoadOptions{.progress = {}, .fuse = {{folder.files(), 0.75f}}});

  const Tokens tokens = some_tokens(model->info().vocab_size, kTokens);
  const Rows want = together(*merged, {{tokens, nullptr}})[0];
  const Rows got = together(*model, {{tokens, &set}})[0];
  const Rows fused = together(*baked, {{tokens, nullptr}})[0];
  const Rows bare = together(*model, {{tokens, nullptr}})[0];
  const auto apart = model->info().encoder ? distance : log_distance;
  // Some families' answers move little: the adapter's part in them is what must be right.
  const float moved = apart(bare, want);
  EXPECT_GT(moved, 5e-5f) << "the adapter must matter";
  EXPECT_LE(apart(fused, want), 1e-6f) << "baked in";
  // Precision `high` rounds what goes into the products with the base; routers may then choose otherwise.
  const float limit = std::min(2e-2f, 0.2f * moved);
  size_t close = 0;
  for (size_t i = 0; i < want.size(); ++i) close += apart({got[i]}, {want[i]}) <= limit ? 1 : 0;
  EXPECT_GE(close, want.size() * 3 / 4) << "largest difference " << apart(got, want);
}

TEST_P(AdaptersTest, rows_with_different_sets_are_each_as_alone) {
  const auto model = build_model(tiny_config(entry()), tiny_source(entry()));
  const auto& matrices = matrices_of(*model);
  ASSERT_FALSE(matrices.empty());
  // The second touches every other matrix only, so that rows meet at sites that one of them has nothing at.
  std::vector<TensorShape> half;
  for (size_t i = 0; i < matrices.size(); i += 2) half.push_back(matrices[i]);
  const auto first = model->adapter(PeftFolder(matrices, 1).files());
  const auto second = model->adapter(PeftFolder(half, 2).files());
  const AdapterSet a = set_of({{first, 1.0f}}), b = set_of({{second, 0.5f}}),
                   both = set_of({{first, 0.3f}, {second, 1.0f}});
  const int vocab = model->info().vocab_size;
  const std::vector<std::pair<Tokens, const AdapterSet*>> rows = {{some_tokens(vocab, 5, 1), &a},
                                                                  {some_tokens(vocab, kTokens, 2), nullptr},
                                                                  {some_tokens(vocab, 11, 3), &b},
                                                                  {some_tokens(vocab, 1, 4), &both},
                                                                  {some_tokens(vocab, 9, 5), &a}};
  const auto crowd = together(*model, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Rows alone = together(*model, {rows[i]})[0];
    if (GetParam().mode == KernelMode::native)
      EXPECT_EQ(alone, crowd[i]) << "row " << i << ": " << distance(alone, crowd[i]);
    else
      EXPECT_LE(distance(alone, crowd[i]), 2e-3f) << "row " << i;
  }
}

TEST(Adapters, stand_beside_quantised_weights) {
  for (const NamedArch& entry : arch_table()) {
    if (entry.family != "llama" && entry.family != "qwen3_moe" && entry.family != "gemma2") continue;
    const auto codes = quantised(tiny_source(entry), 32);
    const auto model = build_model(tiny_config(entry), codes);
    const auto dense = build_model(tiny_config(entry), dequantised_source(codes));
    const PeftFolder folder(adaptable(entry, *model), 1);
    const Tokens tokens = some_tokens(model->info().vocab_size, kTokens);
    Rows answers[2];
    for (Model* one : {model.get(), dense.get()}) {
      const AdapterSet set{{{one->adapter(folder.files()), 1.0f}}};
      StateStore store(one->layout(), StoreOptions{.kv_dtype = mx::float32, .max_tokens = 256});
      RowState row = store.make_row(kTokens);
      Step step;
      step.add(&row, tokens, Wants::all, &set);
      answers[one == dense.get() ? 1 : 0] = finish(*one, step);
    }
    size_t close = 0;
    for (size_t i = 0; i < tokens.size(); ++i)
      close += log_distance({answers[0][i]}, {answers[1][i]}) <= 2e-2f ? 1 : 0;
    EXPECT_GE(close, tokens.size() * 3 / 4) << entry.family << ": " << log_distance(answers[0], answers[1]);
  }
}

// Drafts that are drawn whole are read through what an earlier round expected, by an MLP that sees their
// tokens alone: what adapters add there is each row's own too.
TEST(Adapters, drafts_beside_drafts_are_each_as_alone) {
  const auto entry = std::find_if(arch_table().begin(), arch_table().end(),
                                  [](const NamedArch& e) { return e.family == "diffusion_gemma"; });
  ASSERT_NE(entry, arch_table().end());
  const auto model = build_model(tiny_config(*entry), tiny_source(*entry));
  const auto matrices = adaptable(*entry, *model);
  std::vector<TensorShape> views;
  for (const TensorShape& m : matrices)
    if (m.name.find("self_conditioning") != std::string::npos) views.push_back(m);
  ASSERT_EQ(views.size(), 3u);
  const AdapterSet a{{{model->adapter(PeftFolder(matrices, 1).files()), 1.0f}}},
      b{{{model->adapter(PeftFolder(views, 2).files()), 0.5f}}};
  const int vocab = model->info().vocab_size, size = model->info().diffusion.block;

  struct Draft {
    int seed;
    const AdapterSet* adapters;
    bool knows;  // an earlier round
  };
  const auto answers = [&](const std::vector<Draft>& drafts) {
    StateStore store(model->layout(), StoreOptions{.kv_dtype = mx::float32, .max_tokens = 1024});
    std::vector<RowState> states;
    Step prompts, step;
    for (const Draft& draft : drafts) states.push_back(store.make_row(5 + draft.seed));
    for (size_t i = 0; i < drafts.size(); ++i)
      prompts.add(&states[i], some_tokens(vocab, 5 + drafts[i].seed, drafts[i].seed), Wants::last,
                  drafts[i].adapters);
    (void)finish(*model, prompts);
    for (size_t i = 0; i < drafts.size(); ++i) {
      const auto values = some_tokens(vocab, size * vocab, 10 + drafts[i].seed);
      std::vector<float> logits;
      for (const int32_t value : values) logits.push_back(0.1f * static_cast<float>(value % 41));
      step.add(&states[i], some_tokens(vocab, size, 20 + drafts[i].seed), Wants::all, drafts[i].adapters);
      step.open(size, drafts[i].knows ? std::optional(array(logits.data(), {size, vocab}, mx::float32))
                                      : std::nullopt);
    }
    return finish(*model, step);
  };
  const std::vector<Draft> drafts = {{1, &a, true}, {2, nullptr, true}, {3, &b, false}, {4, &b, true}};
  const Rows crowd = answers(drafts);
  for (size_t i = 0; i < drafts.size(); ++i) {
    const auto from = crowd.begin() + static_cast<ptrdiff_t>(i) * size;
    EXPECT_EQ(answers({drafts[i]}), Rows(from, from + size)) << "draft " << i;
  }
  EXPECT_NE(answers({{4, &b, true}}), answers({{4, nullptr, true}})) << "the adapter must matter";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (size_t i = 0; i < arch_table().size(); ++i)
    for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) all.push_back({i, mode});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, AdaptersTest, ::testing::ValuesIn(cases()), [](const auto& one) {
  return arch_table()[one.param.entry].family +
         (one.param.mode == KernelMode::native ? "_native" : "_reference");
});

}  // namespace
}  // namespace mlxcel::archtest
