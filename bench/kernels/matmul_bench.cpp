// The packed product on weights that do not fit a cache, beside a plain read loop in the same run:
// bytes a second for few rows, operations a second for many. Median of alternating rounds.
// usage: bench_kernels [threads] [rounds] [filter]
#include <fmt/format.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/matmul.h"
#include "kernels/matrix.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {
namespace {

/// Wall time; with one thread its processor time, which a loaded machine disturbs less.
double now() {
  timespec t{};
  clock_gettime(WorkerPool::shared().width() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds(const std::function<void()>& work) {
  const double start = now();
  work();
  return now() - start;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

Weight random_weight(int rows, int columns, int bits, int group) {
  std::mt19937 random(7);
  std::vector<uint32_t> code(static_cast<size_t>(rows) * static_cast<size_t>(columns) *
                             static_cast<size_t>(bits) / 32);
  for (auto& w : code) w = random();
  array scales = mx::full({rows, columns / group}, array(0.01f, mx::float16));
  array biases = mx::full({rows, columns / group}, array(-0.08f, mx::float16));
  mx::eval(scales, biases);
  return {"w",    {rows, columns}, array(code.begin(), {rows, columns * bits / 32}, mx::uint32),
          scales, biases,          QuantFormat{QuantMode::affine, bits, group}};
}

Weight dense_weight(int rows, int columns, mx::Dtype dtype) {
  array data = mx::astype(mx::random::normal({rows, columns}), dtype);
  mx::eval(data);
  return {"d", {rows, columns}, data, std::nullopt, std::nullopt, std::nullopt};
}

/// Reads every byte, a contiguous share a worker.
double read_loop(const uint8_t* data, size_t bytes) {
  return seconds([&] {
    WorkerPool::shared().run([&](int worker, int width) {
      const size_t begin = bytes / 64 * static_cast<size_t>(worker) / static_cast<size_t>(width);
      const size_t end = bytes / 64 * static_cast<size_t>(worker + 1) / static_cast<size_t>(width);
      uint64_t sum[8] = {};
      const auto* p = reinterpret_cast<const uint64_t*>(data);
      for (size_t i = begin * 8; i < end * 8; i += 8)
        for (size_t j = 0; j < 8; ++j) sum[j] += p[i + j];
      for (const uint64_t s : sum) asm volatile("" ::"r"(s));
    });
  });
}

void measure(const char* name, const std::vector<Matrix>& layers, const std::vector<int>& tokens,
             Precision precision, int rounds, const uint8_t* memory, size_t memory_bytes) {
  const int rows = layers[0].rows(), columns = layers[0].columns();
  size_t bytes = 0;
  for (const Matrix& m : layers) bytes += m.bytes();
  for (const int m : tokens) {
    std::vector<float> x(static_cast<size_t>(m) * static_cast<size_t>(columns)),
        out(static_cast<size_t>(m) * static_cast<size_t>(rows));
    std::mt19937 random(3);
    for (auto& v : x) v = std::normal_distribution<float>()(random);
    std::vector<double> ours, reads;
    const std::vector<Job> jobs{{0, 0, m}};
    const size_t used = m >= 64 ? std::max<size_t>(1, layers.size() / 16) : layers.size();
    for (int round = 0; round <= rounds; ++round) {
      const double read = read_loop(memory, memory_bytes) / static_cast<double>(memory_bytes);
      const double time = seconds([&] {
        for (size_t i = 0; i < used; ++i) {
          Product p;
          p.weights = layers[i].storage().get();
          p.precision = precision;
          p.x = x.data();
          p.out = out.data();
          p.out_columns = rows;
          run_product(p, jobs);
        }
      });
      if (round == 0) continue;
      ours.push_back(time / static_cast<double>(used));
      reads.push_back(read);
    }
    const double each = static_cast<double>(bytes) / static_cast<double>(layers.size());
    const double time = median(ours), read = 1e-9 / median(reads), speed = each / time * 1e-9;
    fmt::print(
        "{:<22} {:<5} M={:<4} {:8.1f} us  {:6.1f} GB/s ({:3.0f} % of a read loop at {:.1f})  {:7.1f} Gop/s\n",
        name, to_string(precision), m, time * 1e6, speed, 100 * speed / read, read,
        2e-9 * m * rows * static_cast<double>(columns) / time);
  }
}

int run(int argc, char** argv) {
  if (argc > 1) WorkerPool::set_shared_threads(std::atoi(argv[1]));
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 7;
  const std::string filter = argc > 3 ? argv[3] : "";
  fmt::print("{} threads, {}\n", WorkerPool::shared().width(), isa_name());
  constexpr size_t kRead = size_t{160} << 20;
  const auto memory = packed_memory(kRead);
  std::fill_n(memory.get(), kRead, uint8_t{1});
  struct Case {
    std::string name;
    int rows, columns, copies;
    std::function<Weight(int, int)> make;
    std::vector<Precision> precisions;
  };
  const auto codes = [](int bits, int group) {
    return [=](int r, int c) { return random_weight(r, c, bits, group); };
  };
  const auto floats = [](mx::Dtype d) { return [=](int r, int c) { return dense_weight(r, c, d); }; };
  const std::vector<Precision> two{Precision::high, Precision::fast}, high{Precision::high};
  const Case cases[] = {{"4-bit g32 3072x576", 3072, 576, 100, codes(4, 32), two},
                        {"4-bit g32 576x1536", 576, 1536, 200, codes(4, 32), two},
                        {"4-bit g32 960x576", 960, 576, 200, codes(4, 32), two},
                        {"4-bit g64 4096x4096", 4096, 4096, 10, codes(4, 64), two},
                        {"8-bit g32 49152x576", 49152, 576, 4, codes(8, 32), two},
                        {"bf16 3072x576", 3072, 576, 30, floats(mx::bfloat16), high},
                        {"f32 3072x576", 3072, 576, 20, floats(mx::float32), high}};
  for (const Case& c : cases) {
    if (c.name.find(filter) == std::string::npos) continue;
    const Weight w = c.make(c.rows, c.columns);
    std::vector<Matrix> layers;
    for (int i = 0; i < c.copies; ++i) layers.push_back(Matrix::concatenated(std::span(&w, 1)));
    for (const Precision p : c.precisions)
      measure(c.name.c_str(), layers, {1, 2, 4, 8, 16, 512}, p, rounds, memory.get(), kRead);
  }
  return 0;
}

}  // namespace
}  // namespace mlxcel::kernels

int main(int argc, char** argv) { return mlxcel::kernels::run(argc, argv); }
