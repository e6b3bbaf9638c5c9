// More workers than this machine has cores change no bit: the program runs itself with pools of several
// widths.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/experts.h"
#include "kernels/matrix.h"
#include "kernels/phases.h"
#include "kernels/recurrent.h"
#include "kernels/route.h"

namespace mlxcel::kernels {
namespace {

constexpr const char* kThreads = "MLXCEL_TEST_POOL";
constexpr const char* kDigest = "MLXCEL_TEST_POOL_DIGEST";

/// Before anything asks for the pool.
const bool pool_is_set = [] {
  if (const char* text = std::getenv(kThreads)) WorkerPool::set_shared_threads(std::atoi(text));
  return true;
}();

array evaluated(array a) {
  a = mx::contiguous(a);
  mx::eval(a);
  return a;
}

class Digest {
 public:
  void add(const array& a) {
    const array whole = evaluated(a);
    const auto* bytes = reinterpret_cast<const unsigned char*>(whole.data<char>());
    for (size_t i = 0; i < whole.nbytes(); ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3u;
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

Weight coded(const Shape& shape, int bits) {
  const auto planes = mx::quantize(mx::random::normal(shape), 32, bits);
  return {"w",
          shape,
          evaluated(planes[0]),
          evaluated(mx::astype(planes[1], mx::float16)),
          evaluated(mx::astype(planes[2], mx::float16)),
          QuantFormat{QuantMode::affine, bits, 32}};
}

void products(Digest& digest) {
  const Weight four = coded({200, 320}, 4), eight = coded({333, 320}, 8), bank = coded({5, 48, 320}, 4);
  const Weight gates[] = {coded({96, 320}, 4), coded({96, 320}, 4)};
  const Matrix mixed = Matrix::concatenated(std::vector<Weight>{four, eight});
  const Matrix gated = Matrix::gated(gates[0], gates[1]), experts = Matrix::concatenated({&bank, 1});
  for (const Precision precision : {Precision::high, Precision::fast, Precision::exact}) {
    set_precision(precision);
    for (const int tokens : {1, 2, 5, 8, 16, 70}) {
      const array x = evaluated(mx::random::normal({tokens, 320}));
      const array chosen = evaluated(mx::astype(mx::random::randint(0, 5, {tokens, 2}), mx::int32));
      digest.add(matmul(x, mixed));
      digest.add(gated_matmul(x, gated, Activation::silu));
      digest.add(gather_matmul(x, experts, chosen));
    }
  }
  set_precision(Precision::high);
}

/// Pieces of a late product are as many as the pool's width asks for.
void late_products(Digest& digest) {
  const Weight w = coded({7, 72, 640}, 4);
  const Matrix bank = Matrix::concatenated({&w, 1});
  for (const int tokens : {1, 2, 7, 40}) {
    const array x = evaluated(mx::random::normal({tokens, 640}));
    const array chosen = evaluated(mx::astype(mx::random::randint(0, 7, {tokens, 3}), mx::int32));
    LateProduct product(bank.storage(), Activation::gelu, tokens * 3, tokens == 1);
    std::vector<float> out(static_cast<size_t>(tokens) * 3 * 72), panel(product.panel_floats());
    ExpertDeal dealt;
    dealt.deal(chosen.data<int>(), tokens * 3, 3, 7);
    product.set(x.data<float>(), 640, dealt, dealt.tokens, out.data(), panel.data());
    const auto each = [&](void (LateProduct::*part)(int)) {
      run_tasks(product.pieces(), 1, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) (product.*part)(i);
      });
    };
    if (!panel.empty()) each(&LateProduct::prepare);
    each(&LateProduct::multiply);
    digest.add(array(out.begin(), {tokens, 3 * 72}, mx::float32));
  }
}

void rows(Digest& digest) {
  const std::vector<int> offsets{0, 300, 301, 340};
  const int tokens = offsets.back();
  const auto random = [](const Shape& shape) { return evaluated(mx::random::normal(shape)); };
  for (const bool causal : {true, false})
    digest.add(alone_attention(random({tokens, 6, 32}), random({tokens, 2, 32}), random({tokens, 2, 32}),
                               std::nullopt, offsets, {.heads = 6, .scale = 0.2f}, causal));
  const auto [mixed, state] = causal_conv(random({tokens, 200}), random({200, 4}), std::nullopt,
                                          random({3, 3, 200}), offsets, Activation::silu);
  digest.add(mixed);
  digest.add(state);
  const Shape keys{tokens, 4, 32};
  const auto [seen, memory] = delta_scan({.decay = mx::sigmoid(random(keys)),
                                          .read = random(keys),
                                          .write = random(keys) * array(0.01f),
                                          .key = random(keys) * array(0.01f),
                                          .query = random(keys),
                                          .value = random({tokens, 4, 48})},
                                         random({3, 4, 48, 32}), offsets);
  digest.add(seen);
  digest.add(memory);
  const auto [chosen, weights] =
      route(random({tokens, 64}), std::nullopt, {.per_token = 6, .renormalize = true});
  digest.add(chosen);
  digest.add(weights);
}

void convolutions(Digest& digest) {
  const auto random = [](const Shape& shape) { return evaluated(mx::random::normal(shape)); };
  const auto add = [&](const Shape& input, const Shape& shape, const ConvolutionForm& form) {
    const Weight weight{"w", shape, random(shape), std::nullopt, std::nullopt, std::nullopt};
    digest.add(Convolution(weight, random({shape[0]}), form)(random(input)));
  };
  add({2, 47, 40, 6}, {20, 3, 3, 6}, {.before = {1, 1}, .after = {1, 1}});
  add({1, 300, 24}, {100, 5, 12}, {.before = {4}, .groups = 2});
  add({2, 31, 40, 70}, {70, 3, 3, 1}, {.stride = {2, 1}, .before = {1, 1}, .after = {1, 1}, .groups = 70});
}

TEST(Pool, WritesItsDigest) {
  const char* path = std::getenv(kDigest);
  if (!path) GTEST_SKIP() << "part of the test below";
  share_everything(true);
  mx::random::seed(11);
  Digest digest;
  products(digest);
  late_products(digest);
  rows(digest);
  convolutions(digest);
  std::ofstream(path) << digest.text();
  share_everything(false);
}

TEST(Pool, AnyNumberOfWorkersGivesTheSameBits) {
  if (std::getenv(kDigest)) GTEST_SKIP() << "runs in the parent";
  const auto path = std::filesystem::temp_directory_path() / fmt::format("pool-digest-{}", ::getpid());
  const std::string self = std::filesystem::canonical("/proc/self/exe").string();
  std::string first;
  for (const int threads : {1, 2, 3, 5, 16}) {
    const std::string command =
        fmt::format("{}={} {}='{}' '{}' --gtest_brief=1 --gtest_filter=Pool.WritesItsDigest > /dev/null 2>&1",
                    kThreads, threads, kDigest, path.string(), self);
    ASSERT_EQ(std::system(command.c_str()), 0) << threads << " threads";
    std::string found;
    std::ifstream(path) >> found;
    std::filesystem::remove(path);
    ASSERT_EQ(found.size(), 16u) << threads << " threads";
    if (first.empty()) first = found;
    EXPECT_EQ(found, first) << threads << " threads";
  }
}

}  // namespace
}  // namespace mlxcel::kernels
