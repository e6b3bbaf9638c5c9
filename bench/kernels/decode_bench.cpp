// The linear and row-wise part of a SmolLM2-135M step (no attention): what MLX's graph and the pool's
// hand-overs add to the products themselves, for one token and for a prompt.
// usage: bench_decode [threads] [rounds] [tokens]
#include <fmt/format.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/matrix.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {
namespace {

Weight random_weight(int rows, int columns, int bits) {
  static std::mt19937 random(7);
  std::vector<uint32_t> code(static_cast<size_t>(rows) * static_cast<size_t>(columns) *
                             static_cast<size_t>(bits) / 32);
  for (auto& w : code) w = static_cast<uint32_t>(random());
  array scales = mx::full({rows, columns / 32}, array(0.001f, mx::float16)),
        biases = mx::full({rows, columns / 32}, array(-0.008f, mx::float16));
  mx::eval(scales, biases);
  return {"w",    {rows, columns}, array(code.begin(), {rows, columns * bits / 32}, mx::uint32),
          scales, biases,          QuantFormat{QuantMode::affine, bits, 32}};
}

struct Layer {
  Matrix qkv, o, gate_up, down;
};

/// Wall time; with one thread the process's time, which a loaded machine disturbs less (but it counts the
/// graph's thread and the stream's thread, which otherwise overlap).
double now() {
  timespec t{};
  clock_gettime(WorkerPool::shared().width() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int run(int argc, char** argv) {
  if (argc > 1) WorkerPool::set_shared_threads(std::atoi(argv[1]));
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 30;
  const int only = argc > 3 ? std::atoi(argv[3]) : 0;
  constexpr int kHidden = 576, kInner = 1536, kLayers = 30, kHeads = 9, kKvHeads = 3, kHeadDim = 64;
  std::vector<Layer> layers;
  const auto one = [](const Weight& w) { return Matrix::concatenated(std::span(&w, 1)); };
  for (int i = 0; i < kLayers; ++i)
    layers.push_back({one(random_weight(kHidden + 2 * kKvHeads * kHeadDim, kHidden, 4)),
                      one(random_weight(kHidden, kHidden, 4)),
                      Matrix::gated(random_weight(kInner, kHidden, 4), random_weight(kInner, kHidden, 4)),
                      one(random_weight(kHidden, kInner, 4))});
  const Matrix head = one(random_weight(49152, kHidden, 8));
  array norm = mx::ones({kHidden}),
        frequencies = mx::exp(mx::multiply(mx::arange(0.0f, 32.0f), array(-0.29f)));
  mx::eval(norm, frequencies);
  size_t bytes = head.bytes();
  for (const Layer& l : layers) bytes += l.qkv.bytes() + l.o.bytes() + l.gate_up.bytes() + l.down.bytes();

  const auto graph = [&](const array& ids, const array& positions) {
    const int tokens = ids.shape(0);
    array x = take_rows(head, ids);
    for (const Layer& l : layers) {
      const array qkv = matmul(rms_norm(x, norm, 1e-5f), l.qkv);
      const auto heads = [&](int from, int count) {
        return mx::reshape(mx::slice(qkv, {0, from}, {tokens, from + count * kHeadDim}),
                           {tokens, count, kHeadDim});
      };
      const array q = rope(heads(0, kHeads), positions, frequencies, false);
      const array k = rope(heads(kHidden, kKvHeads), positions, frequencies, false);
      const array mixed =
          mx::add(mx::reshape(q, {tokens, kHidden}),
                  mx::slice(mx::reshape(k, {tokens, kKvHeads * kHeadDim}), {0, 0}, {tokens, 1}));
      x = matmul(mixed, l.o, std::nullopt, x);
      x = matmul(gated_matmul(rms_norm(x, norm, 1e-5f), l.gate_up, Activation::silu), l.down, std::nullopt,
                 x);
    }
    return matmul(mx::slice(rms_norm(x, norm, 1e-5f), {tokens - 1, 0}, {tokens, kHidden}), head);
  };
  const auto plain = [&](int tokens) {  // the products alone
    static std::vector<float> in, out;
    in.assign(static_cast<size_t>(tokens) * kInner, 0.5f);
    out.resize(std::max<size_t>(49152, static_cast<size_t>(tokens) * 2 * kInner));
    const auto product = [&](const Matrix& m, int count) {
      Product p;
      p.weights = m.storage().get();
      p.x = in.data();
      p.out = out.data();
      p.out_columns = m.storage()->fused_gate() ? m.rows() / 2 : m.rows();
      p.activation = Activation::silu;
      run_product(p, std::vector<Job>{{0, 0, count}});
    };
    for (const Layer& l : layers)
      for (const Matrix* m : {&l.qkv, &l.o, &l.gate_up, &l.down}) product(*m, tokens);
    product(head, 1);
  };
  for (const int tokens : {1, 8, 512}) {
    if (only > 0 && tokens != only) continue;
    std::vector<int> id(static_cast<size_t>(tokens), 11);
    const array ids(id.begin(), {tokens}, mx::int32);
    std::vector<double> whole, products;
    const int count = tokens == 512 ? std::max(3, rounds / 10) : rounds;
    for (int round = 0; round <= count; ++round) {
      double start = now();
      array logits = graph(ids, ids);
      mx::eval(logits);
      whole.push_back(now() - start);
      start = now();
      plain(tokens);
      products.push_back(now() - start);
    }
    const auto best = [](std::vector<double> v) {
      std::sort(v.begin(), v.end());
      return std::pair(v[v.size() / 2], v[0]);
    };
    const auto [w, w0] = best(whole);
    const auto [p, p0] = best(products);
    fmt::print(
        "{} threads, {} tokens: step {:.2f} ms (best {:.2f}), products alone {:.2f} ms (best {:.2f}), {:.0f} "
        "tok/s, {:.1f} GB/s of weights\n",
        WorkerPool::shared().width(), tokens, w * 1e3, w0 * 1e3, p * 1e3, p0 * 1e3, tokens / w,
        static_cast<double>(bytes) / w * 1e-9);
  }
  return 0;
}

}  // namespace
}  // namespace mlxcel::kernels

int main(int argc, char** argv) { return mlxcel::kernels::run(argc, argv); }
