// Convolutions of vision and audio towers: time, share of the f32 units' peak, and MLX's own convolution (the
// twin on the CPU) beside them, by turns.
// usage: bench_convolution [threads] [rounds] [part of a name]; rounds of MLX's own are one in eight, at
// least 1
#include <fmt/format.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/convolution.h"
#include "kernels/measure.h"

namespace mlxcel::kernels {
namespace {

struct Case {
  const char* name;
  Shape input, weight;
  ConvolutionForm form;
};

/// Wall time; with one thread the process's time, which a loaded machine disturbs less.
double now() {
  timespec t{};
  clock_gettime(WorkerPool::shared().width() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds(const Convolution& conv, const array& x) {
  const double start = now();
  mx::eval(conv(x));
  return now() - start;
}

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

array drawn(const Shape& shape) {
  array a = mx::random::normal(shape);
  mx::eval(a);
  return a;
}

int run(int argc, char** argv) {
  if (argc > 1) WorkerPool::set_shared_threads(std::atoi(argv[1]));
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 15;
  const std::string filter = argc > 3 ? argv[3] : "";
  const Case cases[] = {
      {"whisper-base conv1, 3000 frames",
       {1, 3000, 80},
       {512, 3, 80},
       {.before = {1}, .after = {1}, .activation = Activation::gelu}},
      {"whisper-base conv2, stride 2",
       {1, 3000, 512},
       {512, 3, 512},
       {.stride = {2}, .before = {1}, .after = {1}, .activation = Activation::gelu}},
      {"ViT-L/14 patches of 336", {1, 336, 336, 3}, {1024, 14, 14, 3}, {.stride = {14, 14}}},
      {"Qwen-VL patches, two frames of 448",
       {1, 2, 448, 448, 3},
       {1280, 2, 14, 14, 3},
       {.stride = {2, 14, 14}}},
      {"SAM neck 3x3, 256 channels", {1, 64, 64, 256}, {256, 3, 3, 256}, {.before = {1, 1}, .after = {1, 1}}},
      {"subsampling 3x3 of stride 2, 1 to 256",
       {1, 1500, 80, 1},
       {256, 3, 3, 1},
       {.stride = {2, 2}, .before = {1, 1}, .after = {1, 1}, .activation = Activation::relu}},
      {"stem 3x3 of stride 2, 3 to 24",
       {1, 512, 512, 3},
       {24, 3, 3, 3},
       {.stride = {2, 2}, .before = {1, 1}, .after = {1, 1}}},
      {"depthwise k31, 1024 channels",
       {1, 1500, 1024},
       {1024, 31, 1},
       {.before = {15}, .after = {15}, .groups = 1024}},
      {"depthwise k9, 512 channels, causal", {1, 1500, 512}, {512, 9, 1}, {.before = {8}, .groups = 512}},
      {"depthwise 3x3, 256 channels",
       {1, 64, 64, 256},
       {256, 3, 3, 1},
       {.before = {1, 1}, .after = {1, 1}, .groups = 256}},
      {"depthwise 5x5 of stride 2, 384 channels",
       {1, 64, 64, 384},
       {384, 5, 5, 1},
       {.stride = {2, 2}, .before = {2, 2}, .after = {2, 2}, .groups = 384}},
      {"wav2vec2 positions, k128 in 16 groups",
       {1, 500, 768},
       {768, 128, 48},
       {.before = {64}, .after = {63}, .groups = 16, .activation = Activation::gelu}},
  };
  fmt::print("{}, {} threads, medians of {} rounds\n\n", isa_name(), WorkerPool::shared().width(), rounds);
  fmt::print("| convolution | ms | Gop/s | of the f32 peak | MLX ms | times MLX |\n");
  fmt::print("| --- | ---: | ---: | ---: | ---: | ---: |\n");
  mx::random::seed(3);
  for (const Case& c : cases) {
    if (std::string(c.name).find(filter) == std::string::npos) continue;
    const Weight weight{c.name, c.weight, drawn(c.weight), std::nullopt, std::nullopt, std::nullopt};
    const array x = drawn(c.input), bias = drawn({c.weight[0]});
    set_kernel_mode(KernelMode::reference);
    const Convolution plain(weight, bias, c.form);
    set_kernel_mode(KernelMode::native);
    const Convolution ours(weight, bias, c.form);
    const Shape out = ours.output_shape(c.input);
    double multiplies = 1;
    for (const auto extent : out) multiplies *= extent;
    for (size_t a = 1; a < c.weight.size(); ++a) multiplies *= c.weight[a];
    std::vector<double> times, others, peaks;
    for (int round = 0; round <= rounds; ++round) {
      const double time = seconds(ours, x), floats = machine_limits(1).floats;
      if (round % 8 == 0) {
        set_kernel_mode(KernelMode::reference);
        others.push_back(seconds(plain, x));
        set_kernel_mode(KernelMode::native);
      }
      if (round == 0) continue;  // warms up
      times.push_back(time);
      peaks.push_back(floats);
    }
    const double time = median(times), other = median(others), rate = 2 * multiplies / time;
    // Beside the process's time stands the peak of the round that was disturbed least.
    const double peak =
        WorkerPool::shared().width() == 1 ? *std::max_element(peaks.begin(), peaks.end()) : median(peaks);
    fmt::print("| {} | {:.3f} | {:.1f} | {:.0f} % | {:.1f} | {:.0f} |\n", c.name, time * 1e3, rate * 1e-9,
               100 * rate / peak, other * 1e3, other / time);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace mlxcel::kernels

int main(int argc, char** argv) { return mlxcel::kernels::run(argc, argv); }
