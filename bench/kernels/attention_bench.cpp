// Attention over pages: a 512-token prompt and decode steps at several contexts, SmolLM2's shape by default.
// With one thread the figures are processor time, which a loaded machine disturbs less.
// usage: bench_attention [threads] [rounds] [heads kv_heads head_dim layers]
#include <fmt/format.h>
#include <malloc.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "state/attend.h"

namespace mlxcel {
namespace {

double now() {
  timespec t{};
  clock_gettime(WorkerPool::shared().width() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Shape3 {
  int heads, kv_heads, head_dim, layers;
};

/// Seconds of one step of `rows`, `count` tokens each, over all layers.
double step_seconds(std::vector<RowState*> rows, int count, const Shape3& s, bool commit) {
  Step step;
  for (RowState* row : rows) step.add(row, std::vector<int32_t>(static_cast<size_t>(count), 1), Wants::last);
  step.seal();
  const auto random = [&](int heads) {
    array x = mx::random::normal({step.count(), heads, s.head_dim});
    mx::eval({x});
    return x;
  };
  const array q = random(s.heads), k = random(s.kv_heads), v = random(s.kv_heads);
  const double start = now();
  std::vector<array> outs;
  for (int layer = 0; layer < s.layers; ++layer)
    outs.push_back(attend(q, k, v, step, layer, {.scale = 0.125f, .softcap = 0.0f, .sinks = std::nullopt}));
  mx::eval(outs);
  const double taken = now() - start;
  if (commit) step.commit();
  return taken;
}

}  // namespace

int run(int threads, int rounds, const Shape3& s) {
  WorkerPool::set_shared_threads(threads);
  StateLayout layout;
  for (int i = 0; i < s.layers; ++i) layout.add_kv({s.kv_heads, s.head_dim, s.head_dim, 0});
  fmt::print("{} threads, {}, {} heads, {} kv heads, head_dim {}, {} layers, f16 pages\n", threads,
             kernels::to_string(kernels::isa()), s.heads, s.kv_heads, s.head_dim, s.layers);
  const auto best_and_median = [&](const auto& measure) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) times.push_back(1e3 * measure());
    std::sort(times.begin(), times.end());
    return fmt::format("{:8.3f} ms median, {:8.3f} ms best", times[times.size() / 2], times[0]);
  };
  StateStore store(layout, {.kv_dtype = mx::float16, .max_tokens = 1 << 15});
  {
    RowState row = store.make_row();
    fmt::print("prompt 512            {}\n",
               best_and_median([&] { return step_seconds({&row}, 512, s, false); }));
  }
  for (const int context : {1, 128, 512, 2048}) {
    RowState row = store.make_row();
    if (context > 1) step_seconds({&row}, context - 1, s, true);
    fmt::print("decode, context {:5} {}\n", context,
               best_and_median([&] { return step_seconds({&row}, 1, s, false); }));
  }
  for (const int batch : {8, 16}) {
    std::vector<RowState> rows;
    std::vector<RowState*> all;
    for (int i = 0; i < batch; ++i) rows.push_back(store.make_row());
    for (RowState& row : rows) all.push_back(&row);
    step_seconds(all, 511, s, true);
    fmt::print("decode, {:2} rows at 512 {}\n", batch,
               best_and_median([&] { return step_seconds(all, 1, s, false); }));
  }
  return 0;
}

}  // namespace mlxcel

int main(int argc, char** argv) {
  // Outputs come from the heap, not from fresh mappings whose page faults would be measured too.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  return mlxcel::run(number(1, 1), number(2, 7), {number(3, 9), number(4, 3), number(5, 64), number(6, 30)});
}
