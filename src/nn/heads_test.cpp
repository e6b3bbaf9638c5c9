// The one-pass form against its twin in plain parts: the same bits, for every mixture of norm and rotation.
#include "nn/heads.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace mlxcel {
namespace {

/// Values in [-1, 1) that follow from a seed.
array values_of(int seed, const Shape& shape) {
  size_t count = 1;
  for (const int n : shape) count *= static_cast<size_t>(n);
  std::vector<float> values(count);
  auto state = static_cast<uint32_t>(seed * 2654435761u + 1);
  for (float& x : values) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return array(values.data(), shape, mx::float32);
}

void expect_same_bits(const array& a, const array& b, const char* what) {
  const array x = mx::contiguous(a), y = mx::contiguous(b);
  mx::eval({x, y});
  ASSERT_EQ(x.shape(), y.shape()) << what;
  EXPECT_EQ(std::memcmp(x.data<float>(), y.data<float>(), x.nbytes()), 0) << what;
}

TEST(SplitHeads, is_its_twin_bit_for_bit) {
  const KernelMode before = kernel_mode();
  set_kernel_mode(KernelMode::native);
  for (const int tokens : {1, 3, 130}) {
    for (const int rotated : {0, 10, 20}) {
      for (const bool interleaved : {false, true}) {
        for (const bool normed : {false, true}) {
          HeadPlan plan{.heads = 6, .kv_heads = 2, .head_dim = 20};
          if (rotated > 0) plan.rope = Rope::plain(rotated, 100.0f, interleaved);
          if (normed) {
            plan.q_norm = RmsNorm{.weight = values_of(1, {20}), .eps = 1e-5f, .offset = 1.0f};
            plan.k_norm = RmsNorm{.weight = values_of(2, {20}), .eps = 1e-5f, .offset = 0.0f};
          }
          Step step;
          step.add(nullptr, std::vector<int32_t>(static_cast<size_t>(tokens), 7), Wants::all);
          step.seal();
          const array qkv = values_of(3 + tokens, {tokens, 10 * 20});
          const Heads want = split_heads_reference(qkv, plan, step), got = split_heads(qkv, plan, step);
          expect_same_bits(want.q, got.q, "q");
          expect_same_bits(want.k, got.k, "k");
          expect_same_bits(want.v, got.v, "v");
        }
      }
    }
  }
  set_kernel_mode(before);
}

TEST(SplitHeads, angles_follow_the_step) {
  const KernelMode before = kernel_mode();
  set_kernel_mode(KernelMode::native);
  const Rope rope = Rope::plain(4, 100.0f);
  std::vector<std::vector<float>> tables;
  for (const int tokens : {3, 2}) {
    Step step;
    step.add(nullptr, std::vector<int32_t>(static_cast<size_t>(tokens), 1), Wants::all);
    step.seal();
    const array once = rope.angles(step), twice = Rope(rope).angles(step);
    EXPECT_EQ(once.id(), twice.id()) << "layers share a step's table";
    array table = once;
    table.eval();
    EXPECT_EQ(table.shape(), (Shape{tokens, 4}));
    EXPECT_EQ(table.data<float>()[0], 1.0f);  // cos 0
    EXPECT_FLOAT_EQ(table.data<float>()[4 + 2], std::sin(1.0f));
  }
  set_kernel_mode(before);
}

TEST(SplitHeads, refuses_another_width) {
  Step step;
  step.add(nullptr, std::vector<int32_t>{1, 2}, Wants::all);
  step.seal();
  EXPECT_THROW(
      (void)split_heads(mx::zeros({2, 70}), HeadPlan{.heads = 2, .kv_heads = 1, .head_dim = 16}, step),
      Error);
}

}  // namespace
}  // namespace mlxcel
