#include "kernels/convolution_plan.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/isa/neon.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {

const DepthwiseBodies& depthwise_bodies() {
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return depthwise_avx2();
    case Isa::avx512:
      return depthwise_avx512();
#elif defined(__aarch64__)
    case Isa::neon:
    case Isa::i8mm:
      return depthwise_neon();
#endif
    default:
      return depthwise_generic();
  }
}

namespace {

// Rows of a region of the pool: bounds what is planned at a time, whatever the image.
constexpr int64_t kRegionRows = 16384;
// Fewer rows than this in a job, and a block's weights are widened too often.
constexpr int kLeastRows = 64;
// Slots of a depthwise tile: 64 KiB, a part of the second-level cache.
constexpr int64_t kSlots = 512;
// Outputs along the fastest axis that are enough for the bodies; what room is left goes to the other axes.
constexpr int kAlong = 16;
// Below this many multiply-adds a second worker costs more than it brings.
constexpr int64_t kParallel = 32768;

constexpr int kAxes = ConvolutionPlan::kAxes;

int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// The part of [0, count) whose positions start + i * step lie in [0, in).
std::pair<int, int> inside(int64_t start, int64_t step, int count, int in) {
  const int64_t first = start >= 0 ? 0 : (-start + step - 1) / step,
                last = start >= in ? 0 : (in - 1 - start) / step + 1;
  const int64_t begin = std::min<int64_t>(first, count), end = std::clamp<int64_t>(last, begin, count);
  return {static_cast<int>(begin), static_cast<int>(end)};
}

void clear(float* to, int64_t count) { std::memset(to, 0, static_cast<size_t>(count) * sizeof(float)); }

}  // namespace

// ---- Windows as rows ------------------------------------------------------------------------------

Windows::Windows(const ConvolutionPlan& plan, const float* x, int group)
    : plan_(plan),
      x_(x),
      first_(group * (plan.inputs / plan.groups)),
      width_(plan.inputs / plan.groups),
      whole_(plan.groups == 1 || plan.taps() == 1) {
  bool covered = true;  // by the window: the axes that are faster than this one
  for (int a = kAxes - 1; a >= 0; --a) {
    const ConvolutionAxis& axis = plan.axis[a];
    if (axis.kernel > 1 && (axis.dilation != 1 || !covered)) whole_ = false;
    covered = covered && axis.kernel == axis.in;
  }
}

const float* Windows::row(int index, float* room) const {
  const ConvolutionAxis* const axis = plan_.axis;
  int64_t start[kAxes];
  bool all_inside = true;
  for (int a = kAxes - 1; a >= 0; --a) {
    start[a] = axis[a].start(index % axis[a].out);
    index /= axis[a].out;
    all_inside = all_inside && start[a] >= 0 && start[a] + axis[a].span() <= axis[a].in;
  }
  const float* const image = x_ + index * plan_.input_positions() * plan_.inputs + first_;
  const auto at = [&](int64_t d, int64_t h, int64_t w) {
    return image + ((d * axis[1].in + h) * axis[2].in + w) * plan_.inputs;
  };
  if (whole_ && all_inside) return at(start[0], start[1], start[2]);

  const int kernel = axis[2].kernel, dilation = axis[2].dilation;
  const auto [first, last] = inside(start[2], dilation, kernel, axis[2].in);
  const auto bytes = static_cast<size_t>(width_) * sizeof(float);
  const bool run = dilation == 1 && plan_.groups == 1;
  float* to = room;
  for (int i = 0; i < axis[0].kernel; ++i)
    for (int j = 0; j < axis[1].kernel; ++j, to += static_cast<ptrdiff_t>(kernel) * width_) {
      const int64_t d = start[0] + static_cast<int64_t>(i) * axis[0].dilation,
                    h = start[1] + static_cast<int64_t>(j) * axis[1].dilation;
      if (d < 0 || d >= axis[0].in || h < 0 || h >= axis[1].in || first == last) {
        clear(to, static_cast<int64_t>(kernel) * width_);
        continue;
      }
      clear(to, static_cast<int64_t>(first) * width_);
      const float* from = at(d, h, start[2] + static_cast<int64_t>(first) * dilation);
      float* tap = to + static_cast<ptrdiff_t>(first) * width_;
      if (run)
        std::memcpy(tap, from, static_cast<size_t>(last - first) * bytes);
      else
        for (int k = first; k < last;
             ++k, from += static_cast<ptrdiff_t>(dilation) * plan_.inputs, tap += width_)
          std::memcpy(tap, from, bytes);
      clear(to + static_cast<ptrdiff_t>(last) * width_, static_cast<int64_t>(kernel - last) * width_);
    }
  return room;
}

void convolve_by_products(const ConvolutionPlan& plan, std::span<const Matrix> groups, const float* x,
                          const float* bias, float* out) {
  static thread_local Products products;
  static thread_local std::vector<Phase> phases;
  static thread_local std::vector<Job> jobs;
  std::vector<Windows> windows;
  for (int g = 0; g < plan.groups; ++g) windows.emplace_back(plan, x, g);
  const int each = plan.outputs / plan.groups, workers = WorkerPool::shared().width();
  // Narrow outputs are few blocks: rows are cut until there is work for everybody.
  const int blocks = (each + kDenseRows - 1) / kDenseRows;
  const int64_t piece = std::clamp<int64_t>(int64_t{1024} * blocks / (8 * workers), kLeastRows, kRegionRows);
  const int64_t rows = plan.images * plan.output_positions();
  for (int64_t begin = 0; begin < rows; begin += kRegionRows) {
    const int64_t end = std::min(rows, begin + kRegionRows);
    jobs.clear();
    for (int64_t at = begin; at < end; at += piece)
      jobs.push_back({0, static_cast<int>(at), static_cast<int>(std::min(piece, end - at))});
    products.clear();
    phases.clear();
    for (int g = 0; g < plan.groups; ++g) {
      Product p;
      p.weights = groups[static_cast<size_t>(g)].storage().get();
      p.precision = plan.precision;
      p.made = &windows[static_cast<size_t>(g)];
      p.out = out + static_cast<ptrdiff_t>(g) * each;
      p.out_columns = plan.outputs;
      p.bias = bias ? bias + static_cast<ptrdiff_t>(g) * each : nullptr;
      p.activation = plan.activation;
      products.add(p, jobs, phases);
    }
    products.bind();
    run_phases(phases);
  }
}

// ---- Depthwise ------------------------------------------------------------------------------------

namespace {

/// How many outputs a task computes along each axis, and how their inputs lie in its slots.
struct Tiling {
  int tile[kAxes];   // outputs
  int count[kAxes];  // tiles
  int slots[kAxes];  // packed: input positions along each axis
  bool packed =
      true;  // all inputs between a tile's first and last; else every tap's own, one tap after another
};

Tiling tiling_of(const ConvolutionPlan& plan) {
  Tiling t{};
  int64_t size[kAxes], all = 1;
  bool fits = true;
  for (int a = 0; a < kAxes; ++a) {
    t.tile[a] = 1;
    size[a] = plan.axis[a].span();
    fits = fits && size[a] <= kSlots && (all *= size[a]) <= kSlots;
  }
  t.packed = fits;
  // Grows axis `a` to at most `most` outputs.
  const auto grow = [&](int a, int most) {
    const ConvolutionAxis& axis = plan.axis[a];
    int64_t room;  // outputs that the slots hold with the other axes as they are
    if (t.packed) {
      const int64_t along = kSlots / (size[0] * size[1] * size[2] / size[a]);
      room = 1 + (along - axis.span()) / axis.stride;
    } else {
      room = std::max<int64_t>(1, kSlots / plan.taps()) / (t.tile[0] * t.tile[1] * t.tile[2] / t.tile[a]);
    }
    t.tile[a] = static_cast<int>(std::clamp<int64_t>(room, t.tile[a], std::min(most, axis.out)));
    size[a] = static_cast<int64_t>(t.tile[a] - 1) * axis.stride + axis.span();
  };
  grow(2, kAlong);
  grow(1, plan.axis[1].out);
  grow(0, plan.axis[0].out);
  grow(2, plan.axis[2].out);
  for (int a = 0; a < kAxes; ++a) {
    t.slots[a] = t.packed ? static_cast<int>(size[a]) : 0;
    t.count[a] = ceil_div(plan.axis[a].out, t.tile[a]);
  }
  return t;
}

/// One task: a tile of outputs of one image, one block of channels.
class DepthwiseTask {
 public:
  DepthwiseTask(const ConvolutionPlan& plan, const Tiling& tiling, const DepthwiseBodies& bodies,
                const float* taps, const float* x, const float* bias, float* out)
      : plan_(plan), t_(tiling), bodies_(bodies), taps_(taps), x_(x), bias_(bias), out_(out) {}

  void run(int task) const {
    static thread_local Scratch scratch;
    static thread_local std::vector<int> slot;
    const int blocks = ceil_div(plan_.outputs, kDepthwiseBlock);
    const int block = task % blocks;
    int rest = task / blocks, first[kAxes], count[kAxes];
    for (int a = kAxes - 1; a >= 0; --a) {
      first[a] = rest % t_.count[a] * t_.tile[a];
      count[a] = std::min(t_.tile[a], plan_.axis[a].out - first[a]);
      rest /= t_.count[a];
    }
    const int channel = block * kDepthwiseBlock,
              channels = std::min(kDepthwiseBlock, plan_.outputs - channel);
    const float* const image = x_ + rest * plan_.input_positions() * plan_.inputs;
    const int64_t slots = t_.packed ? static_cast<int64_t>(t_.slots[0]) * t_.slots[1] * t_.slots[2]
                                    : static_cast<int64_t>(plan_.taps()) * count[0] * count[1] * count[2];
    float* const held = scratch.get<float>(static_cast<size_t>(slots) * kDepthwiseBlock);
    slot.resize(static_cast<size_t>(plan_.taps()));
    int row_step[2], step;  // slots from output to output along each axis
    if (t_.packed) {
      gather_packed(image, first, count, channel, channels, held);
      row_step[0] = plan_.axis[0].stride * t_.slots[1] * t_.slots[2];
      row_step[1] = plan_.axis[1].stride * t_.slots[2];
      step = plan_.axis[2].stride;
      each_tap([&](int tap, int i, int j, int k) {
        slot[static_cast<size_t>(tap)] =
            (i * plan_.axis[0].dilation * t_.slots[1] + j * plan_.axis[1].dilation) * t_.slots[2] +
            k * plan_.axis[2].dilation;
      });
    } else {
      gather_by_tap(image, first, count, channel, channels, held);
      row_step[0] = count[1] * count[2];
      row_step[1] = count[2];
      step = 1;
      each_tap([&](int tap, int, int, int) {
        slot[static_cast<size_t>(tap)] = tap * count[0] * count[1] * count[2];
      });
    }
    DepthwiseRun r{.x = nullptr,
                   .weight = taps_ + static_cast<ptrdiff_t>(block) * plan_.taps() * kDepthwiseBlock,
                   .bias = bias_ ? bias_ + channel : nullptr,
                   .slot = slot.data(),
                   .out = nullptr,
                   .stride = plan_.outputs,
                   .taps = plan_.taps(),
                   .outputs = count[2],
                   .step = step,
                   .channels = channels,
                   .activation = static_cast<int>(plan_.activation)};
    float* const to = out_ + rest * plan_.output_positions() * plan_.outputs + channel;
    for (int i = 0; i < count[0]; ++i)
      for (int j = 0; j < count[1]; ++j) {
        r.x = held + (static_cast<ptrdiff_t>(i) * row_step[0] + static_cast<ptrdiff_t>(j) * row_step[1]) *
                         kDepthwiseBlock;
        const int64_t position =
            (static_cast<int64_t>(first[0] + i) * plan_.axis[1].out + first[1] + j) * plan_.axis[2].out +
            first[2];
        r.out = to + position * plan_.outputs;
        bodies_.run(r);
      }
  }

 private:
  template <class Visit>
  void each_tap(const Visit& visit) const {
    int tap = 0;
    for (int i = 0; i < plan_.axis[0].kernel; ++i)
      for (int j = 0; j < plan_.axis[1].kernel; ++j)
        for (int k = 0; k < plan_.axis[2].kernel; ++k) visit(tap++, i, j, k);
  }

  /// `count` positions of row (d, h), `step` apart from `w` on, to slots; zeros for those outside.
  void gather_run(const float* image, int64_t d, int64_t h, int64_t w, int step, int count, int channel,
                  int channels, float* to) const {
    const ConvolutionAxis* const axis = plan_.axis;
    const bool in_row = d >= 0 && d < axis[0].in && h >= 0 && h < axis[1].in;
    const auto [begin, end] = in_row ? inside(w, step, count, axis[2].in) : std::pair(0, 0);
    if (begin == end) return clear(to, static_cast<int64_t>(count) * kDepthwiseBlock);
    clear(to, static_cast<int64_t>(begin) * kDepthwiseBlock);
    const float* from =
        image + ((d * axis[1].in + h) * axis[2].in + w + static_cast<int64_t>(begin) * step) * plan_.inputs;
    const ptrdiff_t stride = static_cast<ptrdiff_t>(step) * plan_.inputs;
    float* at = to + static_cast<ptrdiff_t>(begin) * kDepthwiseBlock;
    const int repeats = plan_.outputs / plan_.inputs;
    if (repeats == 1) {
      bodies_.copy(from + channel, stride, end - begin, channels, at);
    } else {
      // Several outputs of an input channel each.
      for (int i = begin; i < end; ++i, from += stride, at += kDepthwiseBlock) {
        for (int c = 0; c < channels; ++c) at[c] = from[(channel + c) / repeats];
        clear(at + channels, kDepthwiseBlock - channels);
      }
    }
    clear(to + static_cast<ptrdiff_t>(end) * kDepthwiseBlock,
          static_cast<int64_t>(count - end) * kDepthwiseBlock);
  }

  void gather_packed(const float* image, const int* first, const int* count, int channel, int channels,
                     float* to) const {
    const ConvolutionAxis* const axis = plan_.axis;
    // Of a tile that ends early only what its outputs reach.
    const auto reach = [&](int a) {
      return static_cast<int>(static_cast<int64_t>(count[a] - 1) * axis[a].stride + axis[a].span());
    };
    for (int d = 0; d < reach(0); ++d)
      for (int h = 0; h < reach(1); ++h)
        gather_run(image, axis[0].start(first[0]) + d, axis[1].start(first[1]) + h, axis[2].start(first[2]),
                   1, reach(2), channel, channels,
                   to + (static_cast<ptrdiff_t>(d) * t_.slots[1] + h) * t_.slots[2] * kDepthwiseBlock);
  }

  void gather_by_tap(const float* image, const int* first, const int* count, int channel, int channels,
                     float* to) const {
    const ConvolutionAxis* const axis = plan_.axis;
    const auto place = [&](int a, int output, int tap) {
      return axis[a].start(first[a] + output) + static_cast<int64_t>(tap) * axis[a].dilation;
    };
    each_tap([&](int, int i, int j, int k) {
      for (int d = 0; d < count[0]; ++d)
        for (int h = 0; h < count[1]; ++h, to += static_cast<ptrdiff_t>(count[2]) * kDepthwiseBlock)
          gather_run(image, place(0, d, i), place(1, h, j), place(2, 0, k), axis[2].stride, count[2], channel,
                     channels, to);
    });
  }

  const ConvolutionPlan& plan_;
  const Tiling& t_;
  const DepthwiseBodies& bodies_;
  const float* const taps_;
  const float* const x_;
  const float* const bias_;
  float* const out_;
};

}  // namespace

void convolve_depthwise(const ConvolutionPlan& plan, const float* taps, const float* x, const float* bias,
                        float* out) {
  const Tiling tiling = tiling_of(plan);
  const DepthwiseTask task(plan, tiling, depthwise_bodies(), taps, x, bias, out);
  const int64_t tiles =
      static_cast<int64_t>(plan.images) * tiling.count[0] * tiling.count[1] * tiling.count[2];
  const int64_t tasks = tiles * ceil_div(plan.outputs, kDepthwiseBlock);
  const int64_t work = plan.images * plan.output_positions() * plan.outputs * plan.taps();
  const auto go = [&](int begin, int end) {
    for (int i = begin; i < end; ++i) task.run(i);
  };
  if (work < kParallel) return go(0, static_cast<int>(tasks));
  WorkerPool::shared().each(static_cast<int>(tasks), 1, go);
}

}  // namespace mlxcel::kernels
