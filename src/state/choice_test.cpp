// Values that lie in keys, and keys chosen for each query: against plain attention and a double-precision
// oracle, in any chunks, under every form of the kernels.
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "kernels/isa/dispatch.h"
#include "state/attend.h"
#include "state/pattern.h"
#include "state/test_rows.h"

namespace mlxcel {
namespace {

using testing_rows::InMode;
using testing_rows::random_values;
using testing_rows::tokens_of;
using testing_rows::Values;

/// Steps of these sizes over one fresh row; `each` computes a step's answer for its tokens.
template <class Each>
Values in_steps(StateStore& store, const std::vector<int>& counts, const Each& each) {
  RowState row = store.make_row();
  Values all;
  int from = 0;
  for (const int count : counts) {
    Step step;
    const std::vector<int32_t> ids(static_cast<size_t>(count), 1);
    step.add(&row, ids, Wants::last);
    step.seal();
    array out = each(step, from, count);
    std::vector<array> wanted = step.pending();
    wanted.push_back(out);
    mx::eval(wanted);
    step.commit();
    all.insert(all.end(), out.data<float>(), out.data<float>() + out.size());
    from += count;
  }
  return all;
}

void expect_same_bits(const Values& a, const Values& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

constexpr int kTokens = 75;
const std::vector<std::vector<int>> kSteps = {{75}, {1, 30, 1, 1, 42}, {40, 35}};

struct LatentForm {
  int heads, key_dim, latent;
  mx::Dtype dtype;
};

Values latent_attention(const LatentForm& f, bool once, const std::vector<int>& steps,
                        size_t* bytes = nullptr) {
  StateLayout layout;
  layout.add_kv(once ? KvSpec{.kv_heads = 1, .key_dim = f.key_dim, .latent = f.latent}
                     : KvSpec{.kv_heads = 1, .key_dim = f.key_dim, .value_dim = f.latent});
  StateStore store(std::move(layout), {.kv_dtype = f.dtype, .max_tokens = 256});
  const Values q = random_values(static_cast<size_t>(kTokens * f.heads * f.key_dim), 1);
  const Values k = random_values(static_cast<size_t>(kTokens * f.key_dim), 2);
  const auto result = in_steps(store, steps, [&](Step& step, int from, int count) {
    const array keys = tokens_of(k, 1, f.key_dim, from, count);
    const array values = mx::slice(keys, {0, 0, 0}, {count, 1, f.latent});
    return attend(tokens_of(q, f.heads, f.key_dim, from, count), keys,
                  once ? std::nullopt : std::optional<array>(values), step, 0, {.scale = 0.3f, .sinks = {}});
  });
  if (bytes) *bytes = store.bytes();
  return result;
}

const LatentForm kLatents[] = {{4, 24, 16, mx::float32},  {20, 24, 17, mx::float32},
                               {1, 13, 5, mx::float16},   {20, 40, 32, mx::float16},
                               {9, 24, 24, mx::bfloat16}, {128, 72, 64, mx::float16}};

TEST(Latent, values_in_keys_are_the_values_to_the_bit) {
  for (const LatentForm& f : kLatents) {
    size_t once = 0, twice = 0;
    const Values want = latent_attention(f, false, kSteps[0], &twice);
    for (const auto& steps : kSteps) expect_same_bits(latent_attention(f, true, steps, &once), want);
    EXPECT_LT(once, twice);
  }
}

TEST(Latent, every_instruction_set_agrees) {
  const kernels::Isa best = kernels::isa();
  for (const LatentForm& f : kLatents) {
    const Values want = latent_attention(f, true, kSteps[1]);
    kernels::set_isa(kernels::Isa::generic);
    const Values generic = latent_attention(f, true, kSteps[1]);
    kernels::set_isa(best);
    expect_same_bits(generic, want);
  }
}

TEST(Latent, the_plain_graph_agrees) {
  for (const LatentForm& f : kLatents) {
    const Values native = latent_attention(f, true, kSteps[2]);
    const InMode mode(KernelMode::reference);
    const Values plain = latent_attention(f, true, kSteps[2]);
    for (size_t i = 0; i < native.size(); ++i) ASSERT_NEAR(native[i], plain[i], 2e-5f) << i;
  }
}

TEST(Latent, is_bounded) {
  const auto add = [](const KvSpec& spec) { StateLayout().add_kv(spec); };
  EXPECT_THROW(add({.kv_heads = 1, .key_dim = 8, .latent = 9}), Error);
  EXPECT_THROW(add({.kv_heads = 1, .key_dim = 8, .value_dim = 8, .latent = 8}), Error);
  EXPECT_THROW(add({.kv_heads = 1, .key_dim = 8, .value_dim = -1}), Error);
}

struct ChoiceForm {
  kernels::SelectionForm form;
  int dim = 12;
  int kv_heads = 1;
};

const ChoiceForm kChoices[] = {
    {{.heads = 9, .scale = 0.4f, .by_head = false, .block = 1, .keep = 7, .local = 0}},
    {{.heads = 5, .scale = 0.4f, .by_head = false, .block = 1, .keep = 40, .local = 0}, 20, 2},
    {{.heads = 2, .scale = 1.0f, .by_head = true, .block = 4, .keep = 3, .local = 1}, 16, 2},
    {{.heads = 2, .scale = 1.0f, .by_head = true, .block = 7, .keep = 4, .local = 2}, 8, 4},
    {{.heads = 3, .scale = 1.0f, .by_head = true, .block = 64, .keep = 1, .local = 1}, 8, 3},
};

constexpr int kGroup = 3, kWidth = 10;  // query heads of a kv head, their entries

struct ChoiceData {
  explicit ChoiceData(const ChoiceForm& f)
      : index_q(random_values(static_cast<size_t>(kTokens * f.form.heads * f.dim), 11)),
        index_k(random_values(static_cast<size_t>(kTokens * f.dim), 12)),
        weights(random_values(static_cast<size_t>(kTokens * f.form.heads), 13)),
        q(random_values(static_cast<size_t>(kTokens * f.kv_heads * kGroup * kWidth), 14)),
        k(random_values(static_cast<size_t>(kTokens * f.kv_heads * kWidth), 15)),
        v(random_values(static_cast<size_t>(kTokens * f.kv_heads * kWidth), 16)) {}
  Values index_q, index_k, weights, q, k, v;
};

Values chosen_attention(const ChoiceForm& f, const std::vector<int>& steps) {
  StateLayout layout;
  layout.add_kv({.kv_heads = 1, .key_dim = f.dim});
  layout.add_kv({.kv_heads = f.kv_heads, .key_dim = kWidth, .value_dim = kWidth});
  StateStore store(std::move(layout), {.kv_dtype = mx::float32, .max_tokens = 256});
  const ChoiceData data(f);
  return in_steps(store, steps, [&](Step& step, int from, int count) {
    std::optional<array> weights;
    if (!f.form.by_head)
      weights = mx::reshape(tokens_of(data.weights, f.form.heads, 1, from, count), {count, f.form.heads});
    const KeyChoice choice =
        choose_keys(tokens_of(data.index_q, f.form.heads, f.dim, from, count),
                    tokens_of(data.index_k, 1, f.dim, from, count), weights, step, 0, f.form);
    return attend(tokens_of(data.q, f.kv_heads * kGroup, kWidth, from, count),
                  tokens_of(data.k, f.kv_heads, kWidth, from, count),
                  tokens_of(data.v, f.kv_heads, kWidth, from, count), step, 1,
                  {.scale = 0.5f, .sinks = {}, .chosen = &choice});
  });
}

double dot(const Values& a, int at, const Values& b, int other, int width) {
  double sum = 0;
  for (int d = 0; d < width; ++d)
    sum += static_cast<double>(a[static_cast<size_t>(at * width + d)]) *
           b[static_cast<size_t>(other * width + d)];
  return sum;
}

/// Which keys query `i` may see of the choice of set `set`.
std::vector<bool> oracle_choice(const ChoiceForm& f, const ChoiceData& data, int i, int set) {
  const auto& o = f.form;
  std::vector<double> worth(static_cast<size_t>(i / o.block + 1), -INFINITY);
  for (int j = 0; j <= i; ++j) {
    double score = 0;
    if (o.by_head) {
      score = o.scale * dot(data.index_q, i * o.heads + set, data.index_k, j, f.dim);
    } else {
      for (int h = 0; h < o.heads; ++h)
        score += static_cast<double>(data.weights[static_cast<size_t>(i * o.heads + h)]) *
                 std::max(0.0, o.scale * dot(data.index_q, i * o.heads + h, data.index_k, j, f.dim));
    }
    double& best = worth[static_cast<size_t>(j / o.block)];
    best = std::max(best, score);
  }
  std::vector<size_t> order(worth.size());
  std::iota(order.begin(), order.end(), 0);
  for (int l = 0; l < o.local && l < static_cast<int>(worth.size()); ++l)
    worth[worth.size() - 1 - static_cast<size_t>(l)] = INFINITY;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth[a] > worth[b]; });
  std::vector<bool> seen(static_cast<size_t>(i + 1), false);
  for (size_t n = 0; n < order.size() && n < static_cast<size_t>(o.keep); ++n)
    for (int j = static_cast<int>(order[n]) * o.block;
         j < (static_cast<int>(order[n]) + 1) * o.block && j <= i; ++j)
      seen[static_cast<size_t>(j)] = true;
  return seen;
}

void expect_oracle(const ChoiceForm& f, const Values& got, double tolerance) {
  const ChoiceData data(f);
  const int heads = f.kv_heads * kGroup, sets = f.form.by_head ? f.form.heads : 1;
  for (int i = 0; i < kTokens; ++i)
    for (int h = 0; h < heads; ++h) {
      const int g = h / kGroup;
      const auto seen = oracle_choice(f, data, i, g * sets / f.kv_heads);
      double sum = 0;
      std::vector<double> value(kWidth, 0.0);
      for (int j = 0; j <= i; ++j) {
        if (!seen[static_cast<size_t>(j)]) continue;
        const double weight = std::exp(0.5 * dot(data.q, i * heads + h, data.k, j * f.kv_heads + g, kWidth));
        sum += weight;
        for (int d = 0; d < kWidth; ++d)
          value[static_cast<size_t>(d)] +=
              weight * data.v[static_cast<size_t>((j * f.kv_heads + g) * kWidth + d)];
      }
      for (int d = 0; d < kWidth; ++d)
        ASSERT_NEAR(got[static_cast<size_t>((i * heads + h) * kWidth + d)],
                    value[static_cast<size_t>(d)] / sum, tolerance)
            << "query " << i << ", head " << h;
    }
}

TEST(Choice, is_that_of_the_oracle) {
  for (const ChoiceForm& f : kChoices) expect_oracle(f, chosen_attention(f, kSteps[0]), 1e-5);
}

TEST(Choice, depends_on_the_row_alone) {
  for (const ChoiceForm& f : kChoices) {
    const Values whole = chosen_attention(f, kSteps[0]);
    for (const auto& steps : kSteps) expect_same_bits(chosen_attention(f, steps), whole);
    const kernels::Isa best = kernels::isa();
    kernels::set_isa(kernels::Isa::generic);
    const Values generic = chosen_attention(f, kSteps[1]);
    kernels::set_isa(best);
    expect_same_bits(generic, whole);
  }
}

TEST(Choice, the_plain_graph_agrees) {
  const InMode mode(KernelMode::reference);
  for (const ChoiceForm& f : kChoices)
    for (const auto& steps : kSteps) expect_oracle(f, chosen_attention(f, steps), 1e-4);
}

TEST(Choice, a_window_and_a_choice_do_not_go_together) {
  StateLayout layout;
  layout.add_kv({.kv_heads = 1, .key_dim = 8});
  layout.add_kv({.kv_heads = 1, .key_dim = 8, .value_dim = 8, .window = 5});
  StateStore store(std::move(layout), {.kv_dtype = mx::float32, .max_tokens = 64});
  const Values x = random_values(64, 3);
  EXPECT_THROW(in_steps(store, {4},
                        [&](Step& step, int, int count) {
                          const array a = tokens_of(x, 1, 8, 0, count);
                          const KeyChoice choice =
                              choose_keys(a, a, std::nullopt, step, 0, {.heads = 1, .by_head = true});
                          return attend(a, a, a, step, 1, {.sinks = {}, .chosen = &choice});
                        }),
               Error);
}

/// Keys that a query of this position sees, behind a prompt of `horizon`, by the definition.
bool sees(int position, int key, int horizon, int window) {
  return key <= position && (key < horizon || position - key < window);
}

TEST(PromptAndWindow, a_query_sees_the_prompt_and_the_last_that_was_written) {
  StateLayout layout;
  layout.add_kv({.kv_heads = 1, .key_dim = 8, .value_dim = 8});
  constexpr int kPrompt = 37, kWindow = 6;
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
    const InMode in(mode);
    StateStore store(layout, {.kv_dtype = mx::float32, .max_tokens = 512});
    RowState reads = store.make_row(), writes = store.make_row(kPrompt);
    const std::vector<int32_t> few(5, 1), many(80, 1);
    Step step;
    step.add(&reads, few, Wants::last);
    step.add(&writes, many, Wants::last);
    step.seal();
    const auto choice = prompt_and_window(step, kWindow);
    ASSERT_TRUE(choice);
    for (const StepRow& row : step.rows())
      for (int i = 0; i < row.count; ++i)
        for (int key = 0; key <= i; ++key) {
          const size_t r = row.first == 0 ? 0 : 1;
          bool seen = false;
          if (mode == KernelMode::native) {
            array word = mx::slice(*choice->bits, {row.first + i, 0, key / kPageTokens},
                                   {row.first + i + 1, 1, key / kPageTokens + 1});
            seen = ((mx::reshape(word, {}).item<uint32_t>() >> (key % kPageTokens)) & 1u) != 0;
          } else {
            array one = mx::slice(choice->masks[r], {0, i, key}, {1, i + 1, key + 1});
            seen = mx::reshape(one, {}).item<bool>();
          }
          EXPECT_EQ(seen, sees(i, key, row.horizon, kWindow)) << "row " << r << ", " << i << " of " << key;
        }
    Step read;
    RowState fresh = store.make_row();
    read.add(&fresh, many, Wants::last);
    read.seal();
    EXPECT_FALSE(prompt_and_window(read, kWindow)) << "a prompt sees all of itself";
  }
}

}  // namespace
}  // namespace mlxcel
