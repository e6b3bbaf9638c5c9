// Rows, pages and recurrent state, without attention.
#include <gtest/gtest.h>
#include <mlx/memory.h>
#include <mlx/transforms.h>

#include <climits>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "state/attend.h"
#include "state/pages.h"
#include "state/step.h"
#include "state/store.h"

namespace mlxcel {
namespace {

StateLayout two_layers(int window = 0) {
  StateLayout layout;
  layout.add_kv({2, 8, 8, 0});
  layout.add_kv({2, 8, 16, window});
  return layout;
}

StateLayout recurrent_layer() {
  StateLayout layout;
  layout.add_recurrent({"conv", {3, 4}});
  layout.add_recurrent({"ssm", {2}});
  return layout;
}

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

const std::vector<int32_t>& page_table(RowState& row, size_t group = 0) { return row.impl().tables[group]; }

TEST(StateLayout, CountsBytes) {
  const StateLayout layout = two_layers();
  EXPECT_EQ(layout.kv_bytes_per_token(mx::float16), (2u * 16 + 2u * 24) * 2);
  EXPECT_EQ(layout.kv_bytes_per_token(mx::float32), (2u * 16 + 2u * 24) * 4);
  EXPECT_EQ(recurrent_layer().recurrent_bytes(), (12u + 2u) * 4);
}

TEST(StateLayout, RefusesWhatCannotBe) {
  StateLayout layout;
  for (const KvSpec& spec : {KvSpec{0, 8, 8, 0}, KvSpec{1, 0, 8, 0}, KvSpec{1, 8, -1, 0}, KvSpec{1, 8, 8, -1},
                             KvSpec{1 << 20, 8, 8, 0}, KvSpec{1 << 16, 1 << 20, 1 << 20, 0}})
    expect_error(ErrorKind::bad_checkpoint, "KV slot 0", [&] { layout.add_kv(spec); });
  expect_error(ErrorKind::bad_checkpoint, "conv",
               [&] { layout.add_recurrent({"conv", {1 << 20, 1 << 20}}); });
  expect_error(ErrorKind::bad_checkpoint, "conv", [&] { layout.add_recurrent({"conv", {3, 0}}); });
  EXPECT_TRUE(layout.kv().empty());
  EXPECT_TRUE(layout.recurrent().empty());
}

TEST(StateLayout, RowsOfOneRegimeMayShare) {
  StateLayout plain;
  EXPECT_EQ(plain.regime(100000), 0);
  StateLayout two = two_layers();
  two.add_length_limit(4096, false);
  two.add_length_limit(4096, false);  // once a layer
  EXPECT_EQ(two.regime(4096), 0);
  EXPECT_EQ(two.regime(4097), two.regime(9000));
  EXPECT_NE(two.regime(4097), 0);
  StateLayout growing;
  growing.add_length_limit(2048, true);
  EXPECT_EQ(growing.regime(7), growing.regime(2048));
  EXPECT_NE(growing.regime(3000), growing.regime(3001));
  EXPECT_THROW(two.add_length_limit(2048, false), Error);
}

TEST(RowState, KeepsTheHorizonOfItsPrompt) {
  StateStore store(two_layers(), {.kv_dtype = mx::float32, .max_tokens = 256});
  RowState known = store.make_row(100), open = store.make_row();
  EXPECT_EQ(known.fork().horizon(), 100);
  for (const int count : {5, 1}) {
    Step step;
    step.add(&known, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::last);
    step.add(&open, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::last);
    EXPECT_EQ(step.rows()[0].horizon, 100);
    EXPECT_EQ(step.rows()[1].horizon, 5);  // its first step's, then and later
    step.seal();
    step.commit();
  }
}

TEST(StateStore, BudgetsAndItsErrorsNameBothNumbers) {
  StateStore store(two_layers(), {.max_tokens = 100});
  EXPECT_EQ(store.pages_total(), 4);
  EXPECT_EQ(store.pages_for(1), 1);
  EXPECT_EQ(store.pages_for(33), 2);
  RowState a = store.make_row(), b = store.make_row();
  a.reserve(40);
  a.advance(40);
  EXPECT_EQ(store.pages_free(), 2);
  expect_error(ErrorKind::out_of_memory, "need 3 pages of 32 tokens, 2 of 4 are free",
               [&] { b.reserve(65); });
  EXPECT_EQ(store.pages_free(), 2);  // what threw took nothing
  b.reserve(64);
  EXPECT_EQ(store.pages_free(), 0);
  a.reserve(24);
  expect_error(ErrorKind::out_of_memory, "0 of 4 are free", [&] { a.reserve(25); });
  EXPECT_EQ(a.length(), 40);
}

TEST(StateStore, DefaultBudgetIsAShareOfMemory) {
  StateStore store(two_layers(), {});
  EXPECT_GT(store.pages_total(), 1000);
  EXPECT_EQ(store.bytes(), 0u);  // nothing is taken before it is used
  expect_error(ErrorKind::out_of_memory, "available memory is",
               [] { StateStore huge(two_layers(), {.max_tokens = size_t{1} << 30}); });
  expect_error(ErrorKind::invalid_request, "at most",
               [] { StateStore huge(two_layers(), {.max_tokens = size_t{1} << 50}); });
  expect_error(ErrorKind::unsupported, "float32, float16 or bfloat16",
               [] { StateStore odd(two_layers(), {.kv_dtype = mx::int8, .max_tokens = 32}); });
}

TEST(StateStore, WithoutKeysThereAreNoPages) {
  StateStore store(recurrent_layer(), {});
  EXPECT_EQ(store.pages_total(), 0);
  EXPECT_EQ(store.pages_for(1000), 0);
  RowState row = store.make_row();
  row.reserve(5000);
  row.advance(5000);
  EXPECT_EQ(row.length(), 5000);
}

TEST(RowState, FreedPagesAreUsedFirst) {
  StateStore store(two_layers(), {.max_tokens = 3200});
  {
    RowState row = store.make_row();
    row.reserve(320);
    row.advance(320);
  }
  const size_t bytes = store.bytes();
  EXPECT_EQ(store.pages_free(), 100);
  for (int i = 0; i < 50; ++i) {
    RowState row = store.make_row();
    row.reserve(320);
  }
  EXPECT_EQ(store.bytes(), bytes);
}

TEST(RowState, AReserveThatWasNotUsedIsUsedLater) {
  StateStore store(two_layers(), {.max_tokens = 320});
  RowState row = store.make_row();
  row.reserve(64);
  row.reserve(64);
  EXPECT_EQ(store.pages_free(), 8);
  expect_error(ErrorKind::internal, "reserved are 64", [&] { row.advance(65); });
  EXPECT_EQ(row.length(), 0);
}

TEST(RowState, ForksShareAndCopyOnWrite) {
  StateStore store(two_layers(), {.max_tokens = 320});
  RowState a = store.make_row();
  a.reserve(70);
  a.advance(40);  // pages 0 and 1 hold tokens, page 2 is only reserved
  RowState b = a.fork();
  EXPECT_EQ(store.pages_free(), 7);
  EXPECT_EQ(page_table(b).size(), 2u);
  b.reserve(1);  // into the shared, partly filled page: copied
  EXPECT_EQ(store.pages_free(), 6);
  EXPECT_EQ(page_table(a)[0], page_table(b)[0]);
  EXPECT_NE(page_table(a)[1], page_table(b)[1]);
  const int32_t own = page_table(a)[1];
  a.reserve(1);  // now its only owner: stays
  EXPECT_EQ(page_table(a)[1], own);
  {
    RowState c = std::move(a);
  }
  EXPECT_EQ(store.pages_free(), 8);  // page 0 and the copy remain
  b.truncate(0);
  EXPECT_EQ(store.pages_free(), 10);
}

TEST(RowState, ACopyThatDoesNotFitThrowsAndChangesNothing) {
  StateStore store(two_layers(), {.max_tokens = 64});
  RowState a = store.make_row();
  a.reserve(40);
  a.advance(40);
  RowState b = a.fork();
  expect_error(ErrorKind::out_of_memory, "need 1 pages", [&] { b.reserve(1); });
  EXPECT_EQ(page_table(a), page_table(b));
  {
    RowState gone = std::move(a);
  }
  EXPECT_NO_THROW(b.reserve(1));
}

TEST(RowState, ForkOfAFullPageCopiesNothing) {
  StateStore store(two_layers(), {.max_tokens = 320});
  RowState a = store.make_row();
  a.reserve(64);
  a.advance(64);
  RowState b = a.fork();
  b.reserve(10);
  EXPECT_EQ(store.pages_free(), 7);
}

TEST(RowState, TruncateGivesPagesBack) {
  StateStore store(two_layers(), {.max_tokens = 320});
  RowState row = store.make_row();
  row.reserve(100);
  row.advance(100);
  row.truncate(33);
  EXPECT_EQ(row.length(), 33);
  EXPECT_EQ(store.pages_free(), 8);
  row.truncate(32);
  EXPECT_EQ(store.pages_free(), 9);
  expect_error(ErrorKind::internal, "33 of 32", [&] { row.truncate(33); });
}

TEST(RowState, WindowsLetGoOfPages) {
  StateStore store(two_layers(40), {.max_tokens = 3200});
  RowState row = store.make_row();
  for (int i = 0; i < 50; ++i) {
    row.reserve(20);
    row.advance(20);
  }
  EXPECT_EQ(store.impl().groups[0].free(), 100 - 32);
  // 40 of the window and 64 to roll back by, in pages of 32, need at most 5.
  EXPECT_LE(store.impl().groups[1].total() - store.impl().groups[1].free(), 5);
  EXPECT_LE(store.impl().groups[1].touched(), 6);
  EXPECT_NO_THROW(row.truncate(1000 - kRollbackTokens));
  expect_error(ErrorKind::unsupported, "window of 40", [&] { row.truncate(500); });
  EXPECT_EQ(row.length(), 1000 - kRollbackTokens);
  RowState fork = row.fork();
  row.truncate(0);
  fork.reserve(30);
  fork.advance(30);
  EXPECT_EQ(fork.length(), 1030 - kRollbackTokens);
}

Step& sealed(Step& step, const std::vector<std::pair<RowState*, int>>& rows, Wants wants = Wants::last) {
  for (const auto& [row, count] : rows) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 10);
    step.add(row, ids, wants);
  }
  step.seal();
  return step;
}

TEST(Step, HoldsTheRows) {
  StateStore store(two_layers(), {.max_tokens = 320});
  RowState a = store.make_row(), b = store.make_row(), c = store.make_row();
  a.reserve(5);
  a.advance(5);
  Step step;
  step.add(&a, std::vector<int32_t>{7}, Wants::last);
  step.add(&b, std::vector<int32_t>{1, 2, 3}, Wants::all);
  step.add(&c, std::vector<int32_t>{4, 5}, Wants::none);
  step.seal();
  EXPECT_EQ(step.count(), 6);
  EXPECT_EQ(step.offsets(), (std::vector<int>{0, 1, 4, 6}));
  EXPECT_EQ(step.wanted(), (std::vector<int>{0, 1, 2, 3}));
  const std::vector<int32_t> positions(step.positions().data<int32_t>(),
                                       step.positions().data<int32_t>() + 6);
  EXPECT_EQ(positions, (std::vector<int32_t>{5, 0, 1, 2, 0, 1}));
  step.commit();
  EXPECT_EQ(a.length(), 6);
  EXPECT_EQ(b.length(), 3);
  EXPECT_EQ(c.length(), 2);
}

TEST(Step, RefusesWhatCannotBe) {
  StateStore store(two_layers(), {.max_tokens = 320}), other(two_layers(), {.max_tokens = 320});
  RowState a = store.make_row(), b = other.make_row();
  const std::vector<int32_t> one{1};
  Step step;
  expect_error(ErrorKind::internal, "no rows", [&] { step.seal(); });
  expect_error(ErrorKind::internal, "no tokens", [&] { step.add(&a, {}, Wants::last); });
  step.add(&a, one, Wants::last);
  expect_error(ErrorKind::internal, "earlier row", [&] { step.add(&a, one, Wants::last); });
  expect_error(ErrorKind::internal, "two stores", [&] { step.add(&b, one, Wants::last); });
  expect_error(ErrorKind::internal, "with and without", [&] { step.add(nullptr, one, Wants::last); });
  step.seal();
  expect_error(ErrorKind::internal, "after seal", [&] { step.add(&b, one, Wants::last); });
  EXPECT_EQ(step.rows().size(), 1u);
}

array filled(Shape shape, float from) {
  std::vector<float> values;
  size_t count = 1;
  for (const auto extent : shape) count *= static_cast<size_t>(extent);
  for (size_t i = 0; i < count; ++i) values.push_back(from + static_cast<float>(i));
  return array(values.begin(), shape, mx::float32);
}

std::vector<float> values_of(array x) {
  x = mx::contiguous(x);
  mx::eval({x});
  return {x.data<float>(), x.data<float>() + x.size()};
}

TEST(Recurrent, StacksSplitsAndKeepsOrder) {
  StateStore store(recurrent_layer(), {});
  RowState a = store.make_row(), b = store.make_row(), c = store.make_row();
  {
    Step step;
    sealed(step, {{&a, 2}, {&b, 1}});
    EXPECT_EQ(values_of(step.recurrent(0)), std::vector<float>(24, 0.0f));
    step.set_recurrent(0, filled({2, 3, 4}, 0.0f));
    step.set_recurrent(1, filled({2, 2}, 100.0f));
    EXPECT_EQ(step.pending().size(), 2u);
    mx::eval(step.pending());
    step.commit();
  }
  {
    Step same;
    sealed(same, {{&a, 1}, {&b, 1}});
    const array held = same.recurrent(0);
    EXPECT_EQ(held.id(), same.recurrent(0).id());
    EXPECT_FALSE(held.has_primitive());  // the array itself, no copy
    EXPECT_EQ(values_of(held)[12], 12.0f);
  }
  Step mixed;
  sealed(mixed, {{&b, 1}, {&c, 4}, {&a, 1}});
  EXPECT_EQ(values_of(mixed.recurrent(1)), (std::vector<float>{102, 103, 0, 0, 100, 101}));
  expect_error(ErrorKind::internal, "expected [3, 2]", [&] { mixed.set_recurrent(1, filled({2, 2}, 0.0f)); });
}

TEST(Recurrent, AnAbandonedStepChangesNothing) {
  StateStore store(recurrent_layer(), {});
  RowState a = store.make_row();
  {
    Step step;
    sealed(step, {{&a, 1}}).set_recurrent(1, filled({1, 2}, 1.0f));
    mx::eval(step.pending());
  }
  Step next;
  EXPECT_EQ(values_of(sealed(next, {{&a, 1}}).recurrent(1)), (std::vector<float>{0, 0}));
  EXPECT_EQ(a.length(), 0);
}

TEST(Recurrent, SnapshotsAndForks) {
  StateStore store(recurrent_layer(), {});
  RowState a = store.make_row(), b = store.make_row();
  const auto advance = [&](float value) {
    Step step;
    sealed(step, {{&a, 3}, {&b, 3}}).set_recurrent(1, filled({2, 2}, value));
    mx::eval(step.pending());
    step.commit();
  };
  const auto state_of = [&](RowState& row) {
    Step step;
    return values_of(sealed(step, {{&row, 1}}).recurrent(1));
  };
  const RecurrentSnapshot empty = b.snapshot();
  advance(10);
  const RecurrentSnapshot taken = b.snapshot();
  EXPECT_EQ(taken.length, 3);
  EXPECT_EQ(taken.bytes(), 8u);  // this row's part alone
  RowState fork = b.fork();
  advance(20);
  EXPECT_EQ(state_of(b), (std::vector<float>{22, 23}));
  EXPECT_EQ(state_of(fork), (std::vector<float>{12, 13}));
  EXPECT_EQ(fork.length(), 3);
  expect_error(ErrorKind::unsupported, "recurrent", [&] { b.truncate(4); });
  b.restore(taken);
  EXPECT_EQ(b.length(), 3);
  EXPECT_EQ(state_of(b), (std::vector<float>{12, 13}));
  b.restore(empty);
  EXPECT_EQ(b.length(), 0);
  EXPECT_EQ(state_of(b), (std::vector<float>{0, 0}));
  a.truncate(0);
  EXPECT_EQ(state_of(a), (std::vector<float>{0, 0}));
  StateStore other(two_layers(), {.max_tokens = 32});
  expect_error(ErrorKind::internal, "snapshot of 2", [&] { other.make_row().restore(taken); });
}

TEST(Recurrent, HybridsGoBackWithTheirKeys) {
  StateLayout layout = recurrent_layer();
  layout.add_kv({1, 8, 8, 0});
  StateStore store(layout, {.max_tokens = 320});
  RowState a = store.make_row();
  a.reserve(40);
  a.advance(40);
  const RecurrentSnapshot snapshot = a.snapshot();
  a.reserve(40);
  a.advance(40);
  a.restore(snapshot);
  EXPECT_EQ(a.length(), 40);
  EXPECT_EQ(store.pages_free(), 8);
  a.truncate(0);
  expect_error(ErrorKind::internal, "40 of 0", [&] { a.restore(snapshot); });
}

// Under the reference kernels a decode step must not copy its pools: the scatter writes where they lie.
TEST(ReferencePools, AreWrittenInPlace) {
  const KernelMode before = kernel_mode();
  set_kernel_mode(KernelMode::reference);
  StateLayout layout;
  layout.add_kv({4, 64, 64, 0});
  StateStore store(layout, {.kv_dtype = mx::float32, .max_tokens = 1 << 14});
  set_kernel_mode(before);
  RowState row = store.make_row();
  row.reserve(1 << 14);  // pools of 2 x 16 MiB
  const auto decode = [&] {
    Step step;
    sealed(step, {{&row, 1}});
    const array q = mx::ones({1, 4, 64});
    auto all = std::vector<array>{attend(q, q, q, step, 0, {})};
    for (const array& a : step.pending()) all.push_back(a);
    mx::eval(all);
    step.commit();
  };
  decode();
  const auto* at = store.impl().places[0].keys->data<char>();
  mx::reset_peak_memory();
  const size_t held = mx::get_active_memory();
  for (int i = 0; i < 3; ++i) decode();
  EXPECT_EQ(store.impl().places[0].keys->data<char>(), at);
  EXPECT_LT(mx::get_peak_memory() - held, size_t{4} << 20);
  EXPECT_EQ(row.length(), 4);
}

}  // namespace
}  // namespace mlxcel
