// What a packed matrix stores, and what it leaves out.
#include "kernels/packed.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <random>
#include <span>
#include <vector>

#include "kernels/isa/dispatch.h"
#include "kernels/matrix.h"
#include "kernels/testdata.h"

namespace mlxcel::kernels {
namespace {

/// Random codes, scales about zero-mean weights, biases that no format without them has.
Weight coded_weight(const Shape& shape, QuantFormat format, mx::Dtype dtype, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<uint32_t> code(static_cast<size_t>(shape[0] * shape[1] * format.bits / 32));
  for (auto& word : code) word = static_cast<uint32_t>(random());
  const Shape groups{shape[0], shape[1] / format.group_size};
  const array scales = evaluated(mx::astype(mx::random::uniform(0.01f, 0.06f, groups), dtype));
  const float middle = -0.5f * static_cast<float>((1 << format.bits) - 1);
  const array biases =
      evaluated(mx::astype(mx::multiply(mx::astype(scales, mx::float32), array(middle)), dtype));
  return {"w",    shape,  array(code.begin(), {shape[0], shape[1] * format.bits / 32}, mx::uint32),
          scales, biases, format};
}

Matrix packed(const Weight& w) { return Matrix::concatenated(std::span(&w, 1)); }

template <class Body>
void on_each_isa(const Body& body) {
  const Isa before = isa();
  for (const Isa set : available_isas()) {
    set_isa(set);
    SCOPED_TRACE(to_string(set));
    body();
  }
  set_isa(before);
}

struct Restore {
  Precision precision = kernels::precision();
  ~Restore() { set_precision(precision); }
};

/// The same codes with biases that follow from their scales, as symmetric formats have them.
Weight centred_weight(const Shape& shape, QuantFormat format, mx::Dtype dtype, int seed) {
  Weight w = coded_weight(shape, format, dtype, seed);
  const float middle = -static_cast<float>(1 << (format.bits - 1));
  w.biases = evaluated(mx::astype(mx::multiply(mx::astype(*w.scales, mx::float32), array(middle)), dtype));
  return w;
}

TEST(Packed, BiasesThatFollowFromScalesAreNotStored) {
  const Restore restore;
  on_each_isa([] {
    for (const int bits : {2, 3, 4, 5, 6, 8})
      for (const mx::Dtype dtype : {mx::float16, mx::bfloat16, mx::float32}) {
        const QuantFormat format{QuantMode::affine, bits, 32};
        const Weight w = centred_weight({64, 192}, format, dtype, bits);
        const Matrix m = packed(w);
        EXPECT_EQ(m.bytes(), w.data.nbytes() + w.scales->nbytes());
        const Weight back = m.unpack()[0];
        EXPECT_TRUE(mx::array_equal(back.data, w.data).item<bool>());
        EXPECT_TRUE(mx::array_equal(*back.scales, *w.scales).item<bool>());
        EXPECT_TRUE(mx::array_equal(*back.biases, *w.biases).item<bool>());

        // One bias that does not follow makes the layout store them all: the other rows keep their bits.
        const auto nudge = [&](int row) {
          const array first = mx::reshape(mx::equal(mx::arange(64), array(row)), {64, 1});
          Weight other = w;
          other.biases = evaluated(
              mx::astype(mx::add(mx::astype(*w.biases, mx::float32), mx::astype(first, mx::float32)), dtype));
          return other;
        };
        const Matrix stored = packed(nudge(63));
        EXPECT_GT(stored.bytes(), m.bytes());
        const array ids = array({0, 5, 62}, mx::int32);
        EXPECT_TRUE(mx::array_equal(take_rows(m, ids), take_rows(stored, ids)).item<bool>());
        for (const Precision p : {Precision::high, Precision::fast, Precision::exact})
          for (const int tokens : {1, 3, 17}) {
            set_precision(p);
            const array x = evaluated(mx::random::normal({tokens, 192}));
            const array a = mx::slice(matmul(x, m), {0, 0}, {tokens, 63}),
                        b = mx::slice(matmul(x, stored), {0, 0}, {tokens, 63});
            EXPECT_TRUE(mx::array_equal(a, b).item<bool>()) << bits << " bits, " << tokens << " tokens";
          }
      }
  });
}

TEST(Packed, BiasesOfOneWeightAreStoredWhereItsNeighbourNeedsThem) {
  const Restore restore;
  const QuantFormat format{QuantMode::affine, 4, 32};
  const Weight both[] = {centred_weight({24, 64}, format, mx::float16, 1),
                         coded_weight({24, 64}, format, mx::float16, 2)};
  for (const bool gated : {false, true}) {
    const Matrix m = gated ? Matrix::gated(both[0], both[1]) : Matrix::concatenated(both);
    const auto back = m.unpack();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(mx::array_equal(*back[i].biases, *both[i].biases).item<bool>());
      EXPECT_TRUE(mx::array_equal(*back[i].scales, *both[i].scales).item<bool>());
    }
  }
}

}  // namespace
}  // namespace mlxcel::kernels
