// Attentions over two slots joined by their levels, and drafts whose tokens see each other: against sums in
// double precision, in any chunks, under both kinds of kernels.
#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "state/attend.h"
#include "state/test_rows.h"

namespace mlxcel {
namespace {

constexpr int kTokens = 75, kHeads = 3, kDim = 8;

using testing_rows::InMode;
using testing_rows::random_values;
using testing_rows::tokens_of;
using testing_rows::Values;

/// What a query of one head sees: keys (which are values) at these rows of `keys`, with score scale 1.
struct Seen {
  const Values* keys;
  int row;
};
std::vector<double> oracle(const float* q, const std::vector<Seen>& seen) {
  std::vector<double> sum(kDim, 0.0);
  double total = 0.0;
  for (const Seen& s : seen) {
    const float* key = s.keys->data() + s.row * kDim;
    double score = 0.0;
    for (int d = 0; d < kDim; ++d) score += static_cast<double>(q[d]) * static_cast<double>(key[d]);
    total += std::exp(score);
    for (int d = 0; d < kDim; ++d)
      sum[static_cast<size_t>(d)] += std::exp(score) * static_cast<double>(key[d]);
  }
  for (double& x : sum) x /= total;
  return sum;
}

const Values& queries() {
  static const Values q = random_values(kTokens * kHeads * kDim, 1);
  return q;
}
const Values& near_keys() {
  static const Values k = random_values(kTokens * kDim, 2);
  return k;
}
const Values& far_keys() {
  static const Values k = random_values(kTokens * kDim, 3);
  return k;
}

Values joined(const std::vector<int>& steps, int window, int every) {
  StateLayout layout;
  const int near_slot = layout.add_kv({.kv_heads = 1, .key_dim = kDim, .window = window, .latent = kDim});
  const int far_slot = layout.add_kv({.kv_heads = 1, .key_dim = kDim, .latent = kDim});
  StateStore store(std::move(layout), {.kv_dtype = mx::float32, .max_tokens = 256});
  RowState row = store.make_row();
  Values all;
  int from = 0;
  for (const int count : steps) {
    Step step;
    step.add(&row, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::last);
    step.seal();
    const array q = tokens_of(queries(), kHeads, kDim, from, count);
    const auto [near, near_level] =
        attend_level(q, tokens_of(near_keys(), 1, kDim, from, count), std::nullopt, step, near_slot, {});
    const KeyChoice chosen = every_key(step, every);
    const auto [far, far_level] = attend_level(q, tokens_of(far_keys(), 1, kDim, from, count), std::nullopt,
                                               step, far_slot, {.chosen = &chosen});
    const auto share = [](const array& level) { return mx::expand_dims(mx::exp(level), 2); };
    const auto heads = [&](const array& x) { return mx::reshape(x, {count, kHeads, kDim}); };
    array out = mx::divide(
        mx::add(mx::multiply(heads(near), share(near_level)), mx::multiply(heads(far), share(far_level))),
        mx::add(share(near_level), share(far_level)));
    std::vector<array> wanted = step.pending();
    wanted.push_back(out);
    mx::eval(wanted);
    step.commit();
    out = mx::contiguous(out);
    out.eval();
    all.insert(all.end(), out.data<float>(), out.data<float>() + out.size());
    from += count;
  }
  return all;
}

TEST(Level, two_slots_make_one_softmax) {
  for (const auto& [window, every] : {std::pair{7, 3}, {1, 5}, {40, 33}}) {
    for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
      const InMode in(mode);
      for (const auto& steps : {std::vector{kTokens}, {1, 30, 1, 1, 42}}) {
        const Values found = joined(steps, window, every);
        for (int t = 0; t < kTokens; ++t)
          for (int h = 0; h < kHeads; ++h) {
            std::vector<Seen> seen;
            for (int k = std::max(0, t - window + 1); k <= t; ++k) seen.push_back({&near_keys(), k});
            for (int k = every - 1; k <= t; k += every) seen.push_back({&far_keys(), k});
            const auto want = oracle(queries().data() + (t * kHeads + h) * kDim, seen);
            for (int d = 0; d < kDim; ++d)
              ASSERT_NEAR(found[static_cast<size_t>((t * kHeads + h) * kDim + d)],
                          want[static_cast<size_t>(d)], 2e-5)
                  << "token " << t << ", window " << window << ", every " << every;
          }
      }
    }
  }
}

/// Known tokens, then a draft, in one step or in two; the row forgets the draft.
Values with_draft(int known, int open, int window, bool apart) {
  StateLayout layout;
  layout.add_kv({.kv_heads = 1, .key_dim = kDim, .window = window, .latent = kDim});
  StateStore store(std::move(layout), {.kv_dtype = mx::float32, .max_tokens = 256});
  RowState row = store.make_row();
  Values all;
  const auto run = [&](int from, int count, int draft) {
    Step step;
    step.add(&row, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::last);
    if (draft > 0) step.open(draft);
    step.seal();
    array out = attend(tokens_of(queries(), kHeads, kDim, from, count),
                       tokens_of(near_keys(), 1, kDim, from, count), std::nullopt, step, 0, {});
    std::vector<array> wanted = step.pending();
    wanted.push_back(out);
    mx::eval(wanted);
    step.commit();
    all.insert(all.end(), out.data<float>(), out.data<float>() + out.size());
  };
  if (apart) {
    run(0, known, 0);
    run(known, open, open);
    all.resize(static_cast<size_t>(known * kHeads * kDim));
    run(known, open, open);  // as if it had never been there
  } else {
    run(0, known + open, open);
  }
  EXPECT_EQ(row.length(), known);
  return all;
}

TEST(Draft, its_tokens_see_each_other_and_what_the_first_sees) {
  for (const auto& [known, open, window] : {std::tuple{20, 6, 5}, {33, 40, 0}, {40, 1, 3}, {31, 30, 64}}) {
    for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
      const InMode in(mode);
      for (const bool apart : {false, true}) {
        const Values found = with_draft(known, open, window, apart);
        for (int t = 0; t < known + open; ++t)
          for (int h = 0; h < kHeads; ++h) {
            const bool draft = t >= known;
            const int own = draft ? known : t, oldest = window > 0 ? std::max(0, own - window + 1) : 0;
            std::vector<Seen> seen;
            for (int k = oldest; k < (draft ? known + open : t + 1); ++k) seen.push_back({&near_keys(), k});
            const auto want = oracle(queries().data() + (t * kHeads + h) * kDim, seen);
            for (int d = 0; d < kDim; ++d)
              ASSERT_NEAR(found[static_cast<size_t>((t * kHeads + h) * kDim + d)],
                          want[static_cast<size_t>(d)], 2e-5)
                  << "token " << t << " of " << known << " and " << open << ", window " << window;
          }
      }
    }
  }
}

TEST(Draft, of_no_tokens_or_too_many_is_an_error) {
  StateLayout layout;
  layout.add_kv({.kv_heads = 1, .key_dim = kDim, .value_dim = kDim});
  StateStore store(std::move(layout), {.kv_dtype = mx::float32, .max_tokens = 64});
  RowState row = store.make_row();
  Step step;
  EXPECT_THROW(step.open(1), Error);
  step.add(&row, std::vector<int32_t>(4, 1), Wants::all);
  EXPECT_THROW(step.open(0), Error);
  EXPECT_THROW(step.open(5), Error);
  EXPECT_THROW(step.open(3, mx::zeros({4, 9})), Error);
  step.open(3, mx::zeros({3, 9}));
  step.seal();
  EXPECT_THROW(step.open(3), Error);
}

}  // namespace
}  // namespace mlxcel
