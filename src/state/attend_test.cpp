// attend() against a double-precision oracle, and the promise: a row's result depends on its row alone.
#include "state/attend.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "base/error.h"
#include "kernels/isa/dispatch.h"
#include "state/kv_twin.h"
#include "state/pages.h"
#include "state/recent.h"

namespace mlxcel {
namespace {

struct Form {
  int heads = 6, kv_heads = 2, key_dim = 16, value_dim = 16, window = 0;
  float softcap = 0.0f;
  bool sinks = false;
  mx::Dtype dtype = mx::float32;
  int chunk = 0;
  std::optional<KvFormat> format = {};
  int latent = 0;
  int recent = 0;  // keys whose values are not coded
};

constexpr KvFormat kSteps{kernels::PageType::i8, kernels::PageType::i8};
constexpr KvFormat kTurbo4{kernels::PageType::t4, kernels::PageType::t4};

StateLayout layout_of(const Form& f) {
  StateLayout layout;
  layout.add_kv({.kv_heads = f.kv_heads,
                 .key_dim = f.key_dim,
                 .value_dim = f.latent > 0 ? 0 : f.value_dim,
                 .window = f.window,
                 .chunk = f.chunk,
                 .latent = f.latent});
  return layout;
}

StoreOptions pages_of(const Form& f, size_t tokens) {
  StoreOptions options{.kv_dtype = f.dtype, .max_tokens = tokens, .formats = {}};
  if (f.format) options.formats = {*f.format};
  return options;
}

struct Store : StateStore {
  Store(const Form& f, size_t tokens) : StateStore(layout_of(f), pages_of(f, tokens)) {
    if (f.recent > 0) keep_recent(*this, {f.recent});
  }
};

/// One sequence's projections for every position.
struct Sequence {
  std::vector<float> q, k, v;
  int length;
};

Sequence random_sequence(const Form& f, int length, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(0.0f, 1.5f);
  const auto fill = [&](int heads, int dim) {
    std::vector<float> x(static_cast<size_t>(length * heads * dim));
    for (float& value : x) value = draw(engine);
    return x;
  };
  Sequence s{fill(f.heads, f.key_dim), fill(f.kv_heads, f.key_dim), fill(f.kv_heads, f.value_dim), length};
  return s;
}

AttendOptions options_of(const Form& f) {
  AttendOptions options;
  options.scale = 1.0f / std::sqrt(static_cast<float>(f.key_dim));
  options.softcap = f.softcap;
  if (f.sinks) {
    std::vector<float> sinks(static_cast<size_t>(f.heads));
    for (size_t h = 0; h < sinks.size(); ++h) sinks[h] = 0.3f * static_cast<float>(h) - 0.5f;
    options.sinks = array(sinks.begin(), {f.heads}, mx::float32);
  }
  return options;
}

/// What pages keep of a value.
double stored(float x, mx::Dtype dtype) {
  if (dtype == mx::float16) return static_cast<float>(mx::float16_t(x));
  if (dtype == mx::bfloat16) return static_cast<float>(mx::bfloat16_t(x));
  return x;
}

/// What coded pages keep of vectors of `dim`.
std::vector<float> kept(const std::vector<float>& x, int dim, kernels::PageType type, int split) {
  array given(x.begin(), {static_cast<int>(x.size()) / dim, 1, dim}, mx::float32);
  array back = mx::contiguous(as_kept(given, type, split));
  mx::eval(back);
  return {back.data<float>(), back.data<float>() + x.size()};
}

std::vector<double> oracle(const Form& f, const Sequence& given, bool two_way = false) {
  Sequence s = given;
  const int recent = two_way ? 0 : f.recent;
  if (f.format) {
    s.k = kept(s.k, f.key_dim, f.format->keys, f.latent);
    if (f.latent == 0) s.v = kept(s.v, f.value_dim, f.format->values, 0);
  }
  if (f.latent > 0 && !two_way)
    for (size_t i = 0; i < s.v.size(); ++i)
      s.v[i] = s.k[i / static_cast<size_t>(f.latent) * static_cast<size_t>(f.key_dim) +
                   i % static_cast<size_t>(f.latent)];
  const auto dtype_of = [&](kernels::PageType type) {
    return !f.format || kernels::is_dense(type) ? f.dtype : mx::float32;
  };
  const mx::Dtype key_dtype = f.format ? dtype_of(f.format->keys) : f.dtype;
  const mx::Dtype value_dtype =
      f.format ? dtype_of(f.latent > 0 ? f.format->keys : f.format->values) : f.dtype;
  const AttendOptions options = options_of(f);
  std::vector<double> out(static_cast<size_t>(s.length * f.heads * f.value_dim));
  const int group = f.heads / f.kv_heads;
  for (int i = 0; i < s.length; ++i)
    for (int h = 0; h < f.heads; ++h) {
      const int g = h / group;
      const int lo = two_way ? 0 : f.chunk ? i - i % f.chunk : f.window ? std::max(0, i - f.window + 1) : 0;
      const int hi = two_way ? s.length - 1 : i;
      std::vector<double> score(static_cast<size_t>(hi - lo + 1));
      double top = f.sinks ? 0.3 * h - 0.5 : -INFINITY;
      for (int j = lo; j <= hi; ++j) {
        double dot = 0;
        for (int d = 0; d < f.key_dim; ++d)
          dot += static_cast<double>(s.q[static_cast<size_t>((i * f.heads + h) * f.key_dim + d)]) *
                 stored(s.k[static_cast<size_t>((j * f.kv_heads + g) * f.key_dim + d)], key_dtype);
        dot *= options.scale;
        if (f.softcap > 0) dot = f.softcap * std::tanh(dot / f.softcap);
        score[static_cast<size_t>(j - lo)] = dot;
        top = std::max(top, dot);
      }
      double sum = f.sinks ? std::exp(0.3 * h - 0.5 - top) : 0.0;
      for (double& x : score) sum += (x = std::exp(x - top));
      for (int d = 0; d < f.value_dim; ++d) {
        double value = 0;
        for (int j = lo; j <= hi; ++j) {
          const size_t at = static_cast<size_t>((j * f.kv_heads + g) * f.value_dim + d);
          value += score[static_cast<size_t>(j - lo)] *
                   (i - j < recent ? stored(given.v[at], f.dtype) : stored(s.v[at], value_dtype));
        }
        out[static_cast<size_t>((i * f.heads + h) * f.value_dim + d)] = value / sum;
      }
    }
  return out;
}

/// A row of a step in these tests: positions from .. from + count - 1 of a sequence.
struct Piece {
  const Sequence* sequence;
  RowState* state;
  int from, count;
};

std::vector<std::vector<float>> run(const Form& f, const std::vector<Piece>& pieces, bool two_way = false,
                                    int slot = 0) {
  Step step;
  std::vector<float> q, k, v;
  const auto append = [](std::vector<float>& to, const std::vector<float>& from, int first, int count,
                         int width) {
    to.insert(to.end(), from.begin() + first * width, from.begin() + (first + count) * width);
  };
  for (const Piece& p : pieces) {
    const std::vector<int32_t> ids(static_cast<size_t>(p.count), 1);
    step.add(two_way ? nullptr : p.state, ids, Wants::last);
    append(q, p.sequence->q, p.from, p.count, f.heads * f.key_dim);
    append(k, p.sequence->k, p.from, p.count, f.kv_heads * f.key_dim);
    append(v, p.sequence->v, p.from, p.count, f.kv_heads * f.value_dim);
  }
  step.seal();
  const int tokens = step.count();
  const array qa(q.begin(), {tokens, f.heads, f.key_dim}, mx::float32);
  const array ka(k.begin(), {tokens, f.kv_heads, f.key_dim}, mx::float32);
  const array va(v.begin(), {tokens, f.kv_heads, f.value_dim}, mx::float32);
  array out = two_way        ? attend_alone(qa, ka, va, step, options_of(f))
              : f.latent > 0 ? attend(qa, ka, std::nullopt, step, slot, options_of(f))
                             : attend(qa, ka, va, step, slot, options_of(f));
  std::vector<array> all = step.pending();
  all.push_back(out);
  mx::eval(all);
  step.commit();
  std::vector<std::vector<float>> rows;
  const size_t width = static_cast<size_t>(f.heads * f.value_dim);
  for (const StepRow& row : step.rows()) {
    const float* from = out.data<float>() + static_cast<size_t>(row.first) * width;
    rows.emplace_back(from, from + static_cast<size_t>(row.count) * width);
  }
  return rows;
}

/// The whole sequence in chunks of the given sizes, in one fresh row.
std::vector<float> in_chunks(const Form& f, StateStore& store, const Sequence& s,
                             const std::vector<int>& chunks) {
  RowState row = store.make_row();
  std::vector<float> all;
  int from = 0;
  for (const int count : chunks) {
    const auto part = run(f, {{&s, &row, from, count}})[0];
    all.insert(all.end(), part.begin(), part.end());
    from += count;
  }
  EXPECT_EQ(from, s.length);
  return all;
}

void expect_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(&a[i], &b[i], 4), 0) << i << ": " << a[i] << ", " << b[i];
}

class InMode {
 public:
  explicit InMode(KernelMode mode) : before_(kernel_mode()) { set_kernel_mode(mode); }
  ~InMode() { set_kernel_mode(before_); }

 private:
  KernelMode before_;
};
class WithIsa {
 public:
  explicit WithIsa(kernels::Isa isa) : before_(kernels::isa()) { kernels::set_isa(isa); }
  ~WithIsa() { kernels::set_isa(before_); }

 private:
  kernels::Isa before_;
};

std::vector<Form> forms() {
  return {
      {},                                                           // grouped queries
      {.heads = 4, .kv_heads = 4, .key_dim = 8, .value_dim = 8},    // one query head per kv head
      {.heads = 8, .kv_heads = 1, .key_dim = 24, .value_dim = 40},  // one kv head, wider values
      {.heads = 3, .kv_heads = 1, .key_dim = 7, .value_dim = 5},    // multiples of nothing
      {.heads = 4, .kv_heads = 2, .key_dim = 72, .value_dim = 33},
      {.window = 8},
      {.heads = 5, .kv_heads = 5, .window = 33},
      {.softcap = 3.0f},
      {.sinks = true},
      {.window = 40, .softcap = 2.0f, .sinks = true},
      {.dtype = mx::float16},
      {.heads = 4, .kv_heads = 4, .dtype = mx::bfloat16},
      {.heads = 9, .kv_heads = 3, .key_dim = 64, .value_dim = 64, .dtype = mx::float16},
      {.heads = 14, .kv_heads = 2, .key_dim = 20, .value_dim = 12, .dtype = mx::bfloat16},
      {.format = kSteps},
      {.heads = 9, .kv_heads = 3, .key_dim = 64, .value_dim = 64, .sinks = true, .format = kSteps},
      {.heads = 3,
       .kv_heads = 1,
       .key_dim = 7,
       .value_dim = 5,
       .window = 40,
       .softcap = 2.0f,
       .format = kSteps},
      {.heads = 8, .kv_heads = 1, .key_dim = 40, .value_dim = 32, .format = kSteps, .latent = 32},
      {.format = kTurbo4},
      {.heads = 9, .kv_heads = 3, .key_dim = 64, .value_dim = 64, .sinks = true, .format = kTurbo4},
      {.heads = 4, .kv_heads = 2, .key_dim = 128, .value_dim = 8, .window = 40, .format = kTurbo4},
      {.heads = 8, .kv_heads = 1, .key_dim = 40, .value_dim = 32, .format = kTurbo4, .latent = 32},
      {.dtype = mx::float16, .format = KvFormat{kernels::PageType::f16, kernels::PageType::t4}},
      {.heads = 4,
       .kv_heads = 4,
       .key_dim = 24,
       .value_dim = 64,
       .dtype = mx::bfloat16,
       .format = KvFormat{kernels::PageType::bf16, kernels::PageType::t3}},
      {.key_dim = 7,
       .value_dim = 4,
       .softcap = 3.0f,
       .format = KvFormat{kernels::PageType::f32, kernels::PageType::t3}},
      {.value_dim = 33,
       .dtype = mx::float16,
       .format = KvFormat{kernels::PageType::t4, kernels::PageType::f16}},
      {.heads = 9,
       .kv_heads = 3,
       .key_dim = 64,
       .value_dim = 64,
       .sinks = true,
       .dtype = mx::float16,
       .format = KvFormat{kernels::PageType::f16, kernels::PageType::t4},
       .recent = 40},
      {.window = 50, .format = KvFormat{kernels::PageType::f32, kernels::PageType::t4}, .recent = 33},
      {.softcap = 3.0f,
       .chunk = 70,
       .format = KvFormat{kernels::PageType::f32, kernels::PageType::t4},
       .recent = 8},
      {.key_dim = 24,
       .value_dim = 8,
       .dtype = mx::bfloat16,
       .format = KvFormat{kernels::PageType::bf16, kernels::PageType::t3},
       .recent = 1},
      {.chunk = 9},
      {.heads = 8, .kv_heads = 2, .dtype = mx::float16, .chunk = 70},
  };
}

TEST(Attend, AgreesWithTheOracleAtPageAndSegmentEdges) {
  for (const Form& f : forms())
    for (const int length : {1, 2, 31, 32, 33, 64, 65, 255, 256, 257, 300}) {
      SCOPED_TRACE(::testing::Message() << f.heads << "/" << f.kv_heads << " " << f.key_dim << ","
                                        << f.value_dim << " window " << f.window << " length " << length);
      Store store(f, 512);
      const Sequence s = random_sequence(f, length, 7);
      expect_close(in_chunks(f, store, s, {length}), oracle(f, s), 2e-5);
    }
}

// How near codes come: the least errors of 4 and 3 bits on a normal variable are 0.0095 and 0.0345 of its
// square (Max 1960), whatever the vector was before its rotation.
TEST(CodedPages, KeepVectorsAsWellAsTheirBitsCan) {
  using kernels::PageType;
  constexpr int kDim = 128, kVectors = 400;
  std::mt19937 engine(17);
  std::normal_distribution<float> draw(0.0f, 1.0f);
  std::vector<float> plain, spiked;
  for (int i = 0; i < kDim * kVectors; ++i) {
    plain.push_back(draw(engine));
    spiked.push_back(i % kDim == 5 ? 40.0f * draw(engine) : 0.1f * draw(engine));
  }
  const auto error = [&](const std::vector<float>& x, PageType type) {
    const auto back = kept(x, kDim, type, 0);
    double wrong = 0, all = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      wrong += std::pow(static_cast<double>(x[i]) - back[i], 2);
      all += static_cast<double>(x[i]) * x[i];
    }
    return wrong / all;
  };
  for (const auto& x : {plain, spiked}) {
    EXPECT_LT(error(x, PageType::t4), 0.0115);
    EXPECT_LT(error(x, PageType::t3), 0.038);
    EXPECT_LT(error(x, PageType::i8), 2e-3);
  }
  EXPECT_GT(error(plain, PageType::t3), 0.02);
  // Nothing stays nothing, and what is not finite is seen.
  for (const PageType type : {PageType::t4, PageType::t3, PageType::i8}) {
    for (const float value : kept(std::vector<float>(kDim, 0.0f), kDim, type, 0)) EXPECT_EQ(value, 0.0f);
    std::vector<float> broken(kDim, 1.0f);
    broken[7] = NAN;
    bool seen = false;
    for (const float value : kept(broken, kDim, type, 0)) seen |= std::isnan(value);
    EXPECT_TRUE(seen);
  }
}

TEST(Attend, LongContextAgreesWithTheOracle) {
  const Form f{.heads = 4, .kv_heads = 2, .sinks = true};
  Store store(f, 2048);
  const Sequence s = random_sequence(f, 1100, 3);
  expect_close(in_chunks(f, store, s, {1100}), oracle(f, s), 2e-5);
}

TEST(Attend, ChunksChangeNoBit) {
  for (const Form& f : forms())
    for (const int length : {33, 261}) {
      SCOPED_TRACE(::testing::Message()
                   << f.heads << "/" << f.kv_heads << " window " << f.window << " length " << length);
      Store store(f, 4096);
      const Sequence s = random_sequence(f, length, 11);
      const auto whole = in_chunks(f, store, s, {length});
      expect_same_bits(whole, in_chunks(f, store, s, std::vector<int>(static_cast<size_t>(length), 1)));
      expect_same_bits(whole, in_chunks(f, store, s, {7, length - 7}));
      expect_same_bits(whole, in_chunks(f, store, s, {32, length - 32}));
      expect_same_bits(whole, in_chunks(f, store, s, {1, 2, 3, length - 7, 1}));
    }
}

TEST(Attend, NeighboursChangeNoBit) {
  for (const Form& f : forms()) {
    SCOPED_TRACE(::testing::Message() << f.heads << "/" << f.kv_heads << " window " << f.window);
    Store store(f, 8192);
    const std::vector<int> lengths = {5, 260, 33, 64, 1, 300, 90};
    std::vector<Sequence> sequences;
    std::vector<std::vector<float>> alone;
    for (size_t i = 0; i < lengths.size(); ++i) {
      sequences.push_back(random_sequence(f, lengths[i], static_cast<unsigned>(i)));
      alone.push_back(in_chunks(f, store, sequences[i], {lengths[i]}));
    }
    // Everything but each row's last token in one step, then one decode step of all, in another order.
    std::vector<RowState> rows;
    for (size_t i = 0; i < lengths.size(); ++i) rows.push_back(store.make_row());
    std::vector<Piece> first, second;
    std::vector<size_t> order_first, order_second = {6, 2, 0, 4, 5, 1, 3};
    for (size_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] > 1) {
        first.push_back({&sequences[i], &rows[i], 0, lengths[i] - 1});
        order_first.push_back(i);
      }
    for (const size_t i : order_second) second.push_back({&sequences[i], &rows[i], lengths[i] - 1, 1});
    const auto a = run(f, first), b = run(f, second);
    const auto width = static_cast<std::ptrdiff_t>(f.heads * f.value_dim);
    for (size_t n = 0; n < order_first.size(); ++n) {
      const auto& want = alone[order_first[n]];
      expect_same_bits(a[n], std::vector<float>(want.begin(), want.end() - width));
    }
    for (size_t n = 0; n < order_second.size(); ++n) {
      const auto& want = alone[order_second[n]];
      expect_same_bits(b[n], std::vector<float>(want.end() - width, want.end()));
    }
  }
}

TEST(Attend, EveryInstructionSetGivesTheSameBits) {
  for (const Form& f : forms()) {
    const Sequence s = random_sequence(f, 70, 5);
    std::vector<float> want;
    for (const kernels::Isa isa : kernels::available_isas()) {
      SCOPED_TRACE(kernels::to_string(isa));
      const WithIsa with(isa);
      Store store(f, 512);
      auto got = in_chunks(f, store, s, {40, 1, 29});
      if (want.empty()) want = got;
      // Two attentions become one by functions that each set rounds in its own way.
      if (f.recent > 0)
        expect_close(got, oracle(f, s), 2e-5);
      else
        expect_same_bits(want, got);
      const auto both = run(f, {{&s, nullptr, 0, 70}}, true)[0];
      const Form wide{f.heads, f.kv_heads, f.key_dim, f.value_dim, 0, f.softcap, f.sinks};
      expect_close(both, oracle(wide, s, true), 2e-5);
    }
  }
}

// H9: query i sees keys i-7 .. i. A key that must not be seen may be anything, even infinite.
TEST(Attend, WindowCountsTheCurrentToken) {
  const Form f{.window = 8};
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
    const InMode in(mode);
    for (const int length : {7, 8, 9, 16, 17, 40, 129}) {
      Store store(f, 8192);
      const Sequence s = random_sequence(f, length, 21);
      const auto width = static_cast<std::ptrdiff_t>(f.heads * f.value_dim);
      const auto last = [&](const Sequence& x, std::vector<int> chunks) {
        const auto all = in_chunks(f, store, x, chunks);
        return std::vector<float>(all.end() - width, all.end());
      };
      const auto changed = [&](int position) {
        Sequence other = s;
        const int k = f.kv_heads * f.key_dim, v = f.kv_heads * f.value_dim;
        for (int d = 0; d < k; ++d) other.k[static_cast<size_t>(position * k + d)] += 1.0f;
        for (int d = 0; d < v; ++d) other.v[static_cast<size_t>(position * v + d)] += 1.0f;
        return other;
      };
      for (const auto& chunks :
           {std::vector<int>{length}, std::vector<int>{length - 1, 1}, std::vector<int>{3, length - 3}}) {
        const auto want = last(s, chunks);
        if (length >= 9) {
          EXPECT_EQ(want, last(changed(length - 9), chunks)) << length;
        }
        if (length >= 8) {
          EXPECT_NE(want, last(changed(length - 8), chunks)) << length;
        }
      }
      expect_close(in_chunks(f, store, s, {length}), oracle(f, s), 2e-5);
    }
  }
}

TEST(Attend, ReferenceAgreesWithTheOracleAndTheKernels) {
  for (const Form& f : forms()) {
    SCOPED_TRACE(::testing::Message() << f.heads << "/" << f.kv_heads << " window " << f.window);
    const Sequence s = random_sequence(f, 75, 9), t = random_sequence(f, 40, 10);
    std::vector<std::vector<float>> results[2];
    for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
      const InMode in(mode);
      Store store(f, 512);
      RowState a = store.make_row(), b = store.make_row();
      auto& result = results[mode == KernelMode::native ? 0 : 1];
      for (auto part :
           {run(f, {{&s, &a, 0, 33}}), run(f, {{&s, &a, 33, 41}, {&t, &b, 0, 40}}), run(f, {{&s, &a, 74, 1}}),
            run(f, {{&s, nullptr, 0, 75}, {&t, nullptr, 0, 40}}, true)})
        result.insert(result.end(), part.begin(), part.end());
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i) {
      const std::vector<double> want(results[1][i].begin(), results[1][i].end());
      expect_close(results[0][i], want, 1e-5);
    }
    const auto all = oracle(f, s);
    const std::vector<double> head(all.begin(), all.begin() + 33 * f.heads * f.value_dim);
    expect_close(results[1][0], head, 1e-5);
  }
}

TEST(AttendTwoWay, AgreesWithTheOracleAndIgnoresNeighbours) {
  for (const Form& f : {Form{}, Form{.heads = 12, .kv_heads = 12, .key_dim = 32, .value_dim = 32},
                        Form{.key_dim = 5, .value_dim = 7}, Form{.softcap = 4.0f, .sinks = true}})
    for (const int length : {1, 31, 32, 33, 255, 256, 257, 300}) {
      const Sequence s = random_sequence(f, length, 1), t = random_sequence(f, 45, 2);
      const auto alone = run(f, {{&s, nullptr, 0, length}}, true)[0];
      expect_close(alone, oracle(f, s, true), 2e-5);
      expect_same_bits(
          alone, run(f, {{&t, nullptr, 0, 45}, {&s, nullptr, 0, length}, {&t, nullptr, 0, 45}}, true)[1]);
    }
}

TEST(Attend, ForksGoTheirOwnWays) {
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference})
    for (const int shared : {31, 32, 40}) {
      const InMode in(mode);
      const Form f{.dtype = mx::float16};
      Store store(f, 1024);
      const Sequence s = random_sequence(f, 81, 4);
      Sequence t = random_sequence(f, 81, 5);
      std::copy_n(s.k.begin(), shared * f.kv_heads * f.key_dim, t.k.begin());
      std::copy_n(s.v.begin(), shared * f.kv_heads * f.value_dim, t.v.begin());
      std::copy_n(s.q.begin(), shared * f.heads * f.key_dim, t.q.begin());
      const auto whole_s = in_chunks(f, store, s, {shared, 40, 41 - shared});
      const auto whole_t = in_chunks(f, store, t, {shared, 40, 41 - shared});
      RowState a = store.make_row();
      run(f, {{&s, &a, 0, shared}});
      const int used = store.pages_free();
      RowState b = a.fork();
      EXPECT_EQ(store.pages_free(), used);  // nothing copied yet
      const auto both = run(f, {{&s, &a, shared, 40}, {&t, &b, shared, 40}});
      const auto rest_a = run(f, {{&s, &a, shared + 40, 41 - shared}, {&t, &b, shared + 40, 41 - shared}});
      const auto width = static_cast<std::ptrdiff_t>(f.heads * f.value_dim);
      const auto part = [&](const std::vector<float>& x, int from, int count) {
        return std::vector<float>(x.begin() + from * width, x.begin() + (from + count) * width);
      };
      expect_same_bits(both[0], part(whole_s, shared, 40));
      expect_same_bits(both[1], part(whole_t, shared, 40));
      expect_same_bits(rest_a[0], part(whole_s, shared + 40, 41 - shared));
      expect_same_bits(rest_a[1], part(whole_t, shared + 40, 41 - shared));
    }
}

// A draft of five tokens, three refused, then the true ones: as if the draft had never been.
TEST(Attend, TruncationForgets) {
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference})
    for (const int window : {0, 20}) {
      const InMode in(mode);
      const Form f{.window = window, .dtype = mx::bfloat16};
      Store store(f, 2048);
      const Sequence s = random_sequence(f, 200, 6), wrong = random_sequence(f, 200, 66);
      const auto want = in_chunks(f, store, s, {150, 50});
      RowState row = store.make_row();
      run(f, {{&s, &row, 0, 150}});
      run(f, {{&wrong, &row, 150, 45}});
      row.truncate(150);
      const auto got = run(f, {{&s, &row, 150, 50}})[0];
      const auto width = static_cast<std::ptrdiff_t>(f.heads * f.value_dim);
      expect_same_bits(got, std::vector<float>(want.begin() + 150 * width, want.end()));
    }
}

// A step that is dropped before commit() leaves no trace, evaluated or not.
TEST(Attend, AbandonedStepsLeaveNoTrace) {
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference})
    for (const bool evaluated : {false, true}) {
      const InMode in(mode);
      const Form f{};
      Store store(f, 512);
      const Sequence s = random_sequence(f, 60, 8);
      const auto want = in_chunks(f, store, s, {35, 25});
      RowState row = store.make_row();
      run(f, {{&s, &row, 0, 35}});
      {
        Step step;
        step.add(&row, std::vector<int32_t>(10, 1), Wants::last);
        step.seal();
        const auto nan = [](int heads, int dim) { return mx::full({10, heads, dim}, NAN, mx::float32); };
        array out = attend(nan(f.heads, f.key_dim), nan(f.kv_heads, f.key_dim), nan(f.kv_heads, f.value_dim),
                           step, 0, options_of(f));
        auto all = step.pending();
        all.push_back(out);
        if (evaluated) mx::eval(all);
      }
      EXPECT_EQ(row.length(), 35);
      const auto got = run(f, {{&s, &row, 35, 25}})[0];
      const auto width = static_cast<std::ptrdiff_t>(f.heads * f.value_dim);
      expect_same_bits(got, std::vector<float>(want.begin() + 35 * width, want.end()));
    }
}

// Old values in pages that are used again must not get in, not even infinite ones.
TEST(Attend, ReusedPagesAreClean) {
  for (const KernelMode mode : {KernelMode::native, KernelMode::reference}) {
    const InMode in(mode);
    const Form f{};
    Store store(f, 64);
    {
      RowState dirty = store.make_row();
      Sequence bad = random_sequence(f, 64, 1);
      std::fill(bad.k.begin(), bad.k.end(), INFINITY);
      std::fill(bad.v.begin(), bad.v.end(), NAN);
      run(f, {{&bad, &dirty, 0, 64}});
      EXPECT_EQ(store.pages_free(), 0);
    }
    EXPECT_EQ(store.pages_free(), 2);
    const Sequence s = random_sequence(f, 37, 2);
    expect_close(in_chunks(f, store, s, {30, 7}), oracle(f, s), 2e-5);
  }
}

TEST(Attend, ShapesAreChecked) {
  const Form f{};
  Store store(f, 64);
  RowState row = store.make_row();
  Step step;
  step.add(&row, std::vector<int32_t>{1, 2}, Wants::last);
  step.seal();
  const array q = mx::zeros({2, 6, 16}), k = mx::zeros({2, 2, 16});
  EXPECT_THROW(attend(q, k, mx::zeros({2, 2, 8}), step, 0, {}), Error);
  EXPECT_THROW(attend(q, mx::zeros({2, 4, 16}), k, step, 0, {}), Error);
  EXPECT_THROW(attend(mx::zeros({3, 6, 16}), k, k, step, 0, {}), Error);
  EXPECT_THROW(attend(q, k, k, step, 0, {.scale = 1.0f, .softcap = 0.0f, .sinks = mx::zeros({5})}), Error);
  EXPECT_NO_THROW(attend(q, k, k, step, 0, {}));
}

}  // namespace
}  // namespace mlxcel
