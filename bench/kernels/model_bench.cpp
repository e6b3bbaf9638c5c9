// Steps of a real model without the engine: a prompt, one token, several rows, a draft to verify; blocks
// fused and as a chain of nodes, in turn. The best of many steps is what the machine does when it is left
// alone. usage: bench_model MODEL [threads] [rounds] [precision] [part of a case's name]
#include <fmt/format.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/matrix.h"
#include "kernels/packed.h"
#include "models/model.h"
#include "nn/phases.h"

namespace mlxcel {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  int rows, context, tokens;  // rows that hold `context` tokens take `tokens` more
};

double step_seconds(Model& model, std::vector<RowState>& rows, int tokens, Wants wants) {
  Step step;
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(1000 + 37 * i % 5000);
  const auto start = Clock::now();
  for (RowState& row : rows) step.add(&row, ids, wants);
  step.seal();
  const array logits = model.logits(step);
  auto all = step.pending();
  all.push_back(logits);
  mx::eval(all);
  const double time = std::chrono::duration<double>(Clock::now() - start).count();
  step.commit();
  return time;
}

/// Seconds to read `bytes` once, a contiguous share a worker.
double read_seconds(const uint8_t* data, size_t bytes) {
  const auto start = Clock::now();
  WorkerPool::shared().run([&](int worker, int width) {
    const auto [begin, end] = share(static_cast<int>(bytes / 64), worker, width);
    uint64_t sum[8] = {};
    const auto* p = reinterpret_cast<const uint64_t*>(data);
    for (size_t i = static_cast<size_t>(begin) * 8; i < static_cast<size_t>(end) * 8; i += 8)
      for (size_t j = 0; j < 8; ++j) sum[j] += p[i + j];
    for (const uint64_t s : sum) asm volatile("" ::"r"(s));
  });
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_model MODEL [threads] [rounds] [precision] [case]\n");
    return 2;
  }
  if (argc > 2) WorkerPool::set_shared_threads(std::atoi(argv[2]));
  const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 20;
  if (argc > 4) kernels::set_precision(kernels::parse_precision(argv[4]));
  const auto model = load_model(open_checkpoint(argv[1]));
  StateStore store(model->layout(), {.kv_dtype = mx::float16, .max_tokens = 20480});
  const double bytes = static_cast<double>(model->info().weight_bytes);
  fmt::print("{} threads, {}, {}, {:.1f} MB of weights\n", WorkerPool::shared().width(), kernels::isa_name(),
             kernels::to_string(kernels::precision()), bytes * 1e-6);
  constexpr size_t kRead = size_t{96} << 20;
  const auto memory = kernels::packed_memory(kRead);
  std::fill_n(memory.get(), kRead, uint8_t{1});
  const Case cases[] = {{"1 token at 128", 1, 128, 1},   {"4 tokens at 128", 1, 128, 4},
                        {"1 token at 1024", 1, 1024, 1}, {"8 rows at 128", 8, 128, 1},
                        {"16 rows at 128", 16, 128, 1},  {"prompt of 512", 1, 0, 512}};
  for (const Case& c : cases) {
    if (argc > 5 && std::string(c.name).find(argv[5]) == std::string::npos) continue;
    std::vector<RowState> rows;
    for (int i = 0; i < c.rows; ++i) rows.push_back(store.make_row());
    if (c.context > 0) step_seconds(*model, rows, c.context, Wants::none);
    std::vector<double> fused, chain, reads;
    const int count = c.tokens > 64 ? std::max(3, rounds / 10) : rounds;
    for (int i = 0; i <= count; ++i) {
      for (const bool on : {true, false}) {
        set_fusing(on);
        const double time = step_seconds(*model, rows, c.tokens, c.tokens > 64 ? Wants::last : Wants::all);
        for (RowState& row : rows) row.truncate(c.context);
        if (i > 0) (on ? fused : chain).push_back(time);
      }
      reads.push_back(read_seconds(memory.get(), kRead) / static_cast<double>(kRead));
    }
    for (auto* times : {&fused, &chain, &reads}) std::sort(times->begin(), times->end());
    const double best = fused.front(), tokens = static_cast<double>(c.rows * c.tokens);
    fmt::print(
        "{:<16} fused {:8.3f} ms best {:8.3f} median | chain {:8.3f} best {:8.3f} median | best: {:7.1f} "
        "tok/s, "
        "{:5.1f} GB/s of weights, read loop {:5.1f}\n",
        c.name, 1e3 * best, 1e3 * fused[fused.size() / 2], 1e3 * chain.front(), 1e3 * chain[chain.size() / 2],
        tokens / best, 1e-9 * bytes / best, 1e-9 / reads.front());
  }
  return 0;
}

}  // namespace
}  // namespace mlxcel

int main(int argc, char** argv) { return mlxcel::run(argc, argv); }
