#include "kernels/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>

#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/isa/peak.h"
#include "kernels/matmul.h"
#include "kernels/packed.h"
#include "tensor/external.h"

namespace mlxcel::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRead = size_t{128} << 20;  // beyond any cache
constexpr size_t kStreamed = size_t{100} << 20;
// A prompt's product reads its weights from memory once for many operations: a few copies do.
constexpr size_t kComputed = size_t{12} << 20;
constexpr uint64_t kPeakSteps = 400000;

template <class Work>
double seconds(const Work& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

const PeakBodies& peak_bodies() {
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return peak_avx2();
    case Isa::avx512:
      return peak_avx512();
#elif defined(__aarch64__)
    case Isa::neon:
      return peak_neon();
    case Isa::i8mm:
      return peak_i8mm();
#endif
    default:
      return peak_generic();
  }
}

/// Small numbers that differ: any do.
uint64_t next(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}

template <class T>
T* elements(array& a) {
  return reinterpret_cast<T*>(mutable_bytes(a));
}

/// f16 bits of 2^-exponent times `sign`.
uint16_t half_power(int exponent, bool negative) {
  return static_cast<uint16_t>((negative ? 0x8000u : 0u) | static_cast<unsigned>(15 - exponent) << 10);
}

Weight coded(int rows, int columns, int bits, int group) {
  array data = allocated({rows, columns * bits / 32}, mx::uint32);
  uint64_t state = 7;
  for (size_t i = 0; i < data.size(); ++i)
    elements<uint32_t>(data)[i] = static_cast<uint32_t>(next(state) << 16 ^ next(state));
  array scales = allocated({rows, columns / group}, mx::float16),
        biases = allocated({rows, columns / group}, mx::float16);
  std::fill_n(elements<uint16_t>(scales), scales.size(), half_power(7, false));
  std::fill_n(elements<uint16_t>(biases), biases.size(), half_power(4, true));
  return {"w", {rows, columns}, data, scales, biases, QuantFormat{QuantMode::affine, bits, group}};
}

Weight dense(int rows, int columns) {
  array data = allocated({rows, columns}, mx::bfloat16);
  uint64_t state = 9;
  for (size_t i = 0; i < data.size(); ++i)
    elements<uint16_t>(data)[i] = static_cast<uint16_t>(0x3f00u | (next(state) & 0x80ffu));
  return {"w", {rows, columns}, data, std::nullopt, std::nullopt, std::nullopt};
}

/// Memory that a read loop goes over, a contiguous share a worker.
class ReadLoop {
 public:
  ReadLoop() : memory_(packed_memory(kRead)) { std::memset(memory_.get(), 1, kRead); }
  double bytes_a_second() const {
    return static_cast<double>(kRead) / seconds([&] {
             WorkerPool::shared().run([&](int worker, int width) {
               const auto [begin, end] = share(static_cast<int>(kRead / 64), worker, width);
               uint64_t sum[8] = {};
               const auto* p = reinterpret_cast<const uint64_t*>(memory_.get());
               for (size_t i = static_cast<size_t>(begin) * 8; i < static_cast<size_t>(end) * 8; i += 8)
                 for (size_t j = 0; j < 8; ++j) sum[j] += p[i + j];
               for (const uint64_t s : sum) asm volatile("" ::"r"(s));
             });
           });
  }

 private:
  std::shared_ptr<uint8_t> memory_;
};

double peak_of(uint64_t (*body)(uint64_t, uint8_t*)) {
  std::atomic<uint64_t> done{0};
  const double time = seconds([&] {
    WorkerPool::shared().run([&](int, int) {
      alignas(64) uint8_t sink[1024] = {};
      done.fetch_add(body(kPeakSteps, sink), std::memory_order_relaxed);
    });
  });
  return 2.0 * static_cast<double>(done.load()) / time;
}

}  // namespace

MachineLimits machine_limits(int rounds) {
  const ReadLoop loop;
  const PeakBodies& peak = peak_bodies();
  std::vector<double> read, bytes, pairs, floats;
  for (int i = 0; i < std::max(1, rounds); ++i) {
    read.push_back(loop.bytes_a_second());
    bytes.push_back(peak_of(peak.bytes));
    pairs.push_back(peak_of(peak.pairs));
    floats.push_back(peak_of(peak.floats));
  }
  return {median(read), median(bytes), median(pairs), median(floats)};
}

std::vector<ProductFigure> measure_products(int rounds, const std::string& filter,
                                            const std::function<void(const ProductFigure&)>& seen) {
  struct Case {
    const char* name;
    int rows, columns, bits, group;  // bits 16: bf16
  };
  constexpr Case kCases[] = {{"4-bit g32 3072x576", 3072, 576, 4, 32},
                             {"4-bit g32 576x1536", 576, 1536, 4, 32},
                             {"4-bit g64 4096x4096", 4096, 4096, 4, 64},
                             {"8-bit g32 49152x576", 49152, 576, 8, 32},
                             {"bf16 3072x576", 3072, 576, 16, 0}};
  const ReadLoop loop;
  const PeakBodies& peak = peak_bodies();
  std::vector<ProductFigure> figures;
  for (const Case& c : kCases) {
    if (std::string(c.name).find(filter) == std::string::npos) continue;
    const Weight weight = c.bits == 16 ? dense(c.rows, c.columns) : coded(c.rows, c.columns, c.bits, c.group);
    std::vector<Matrix> copies{Matrix::concatenated(std::span(&weight, 1))};
    const size_t each = copies[0].bytes();
    while (copies.size() * each < kStreamed) copies.push_back(Matrix::concatenated(std::span(&weight, 1)));
    for (const Precision precision : {Precision::high, Precision::fast}) {
      if (c.bits == 16 && precision == Precision::fast) continue;
      double alone = 0;
      for (const int tokens : {1, 2, 4, 8, 16, 512}) {
        std::vector<float> x(static_cast<size_t>(tokens) * static_cast<size_t>(c.columns)),
            out(static_cast<size_t>(tokens) * static_cast<size_t>(c.rows));
        uint64_t state = 3;
        for (float& v : x) v = static_cast<float>(next(state) & 0xffff) / 32768.0f - 1.0f;
        const size_t used =
            tokens > 16 ? std::clamp<size_t>(kComputed / each, 1, copies.size()) : copies.size();
        std::vector<double> times, reads, peaks;
        for (int round = 0; round <= rounds; ++round) {
          const double read = loop.bytes_a_second(), bytes = peak_of(peak.bytes);
          const double most = bytes > 0 ? bytes : std::max(peak_of(peak.pairs), peak_of(peak.floats));
          const double time = seconds([&] {
            for (size_t i = 0; i < used; ++i) {
              Product p;
              p.weights = copies[i].storage().get();
              p.precision = precision;
              p.x = x.data();
              p.out = out.data();
              p.out_columns = c.rows;
              const Job job{0, 0, tokens};
              run_product(p, std::span(&job, 1));
            }
          });
          if (round == 0) continue;  // warms up
          times.push_back(time / static_cast<double>(used));
          reads.push_back(read);
          peaks.push_back(most);
        }
        ProductFigure f{
            .weights = c.name, .precision = precision, .tokens = tokens, .seconds = median(times)};
        if (tokens == 1) alone = f.seconds;
        f.bytes_a_second = static_cast<double>(each) / f.seconds;
        f.read_share = f.bytes_a_second / median(reads);
        f.ops_a_second =
            2.0 * tokens * static_cast<double>(c.rows) * static_cast<double>(c.columns) / f.seconds;
        f.peak_share = f.ops_a_second / median(peaks);
        f.against_one = f.seconds / alone;
        if (seen) seen(f);
        figures.push_back(std::move(f));
      }
    }
  }
  return figures;
}

}  // namespace mlxcel::kernels
