#include "app/bench_kernels.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/options.h"
#include "base/worker_pool.h"
#include "kernels/measure.h"

namespace mlxcel::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e-9;

Json json_of(const kernels::ProductFigure& f) {
  return {{"weights", f.weights},
          {"precision", kernels::to_string(f.precision)},
          {"tokens", f.tokens},
          {"seconds", f.seconds},
          {"bytes_per_second", f.bytes_a_second},
          {"read_loop_share", f.read_share},
          {"ops_per_second", f.ops_a_second},
          {"peak_share", f.peak_share},
          {"against_one_token", f.against_one}};
}

}  // namespace

int bench_kernels(int repetitions, const std::string& filter, const std::string& format) {
  const auto limits = kernels::machine_limits(repetitions);
  const Json machine = {{"device", device_label()},
                        {"threads", WorkerPool::shared().width()},
                        {"read_bytes_per_second", limits.read},
                        {"byte_ops_per_second", limits.bytes},
                        {"pair_ops_per_second", limits.pairs},
                        {"float_ops_per_second", limits.floats}};
  if (format == "md") {
    fmt::print(
        "{}: read loop {:.1f} GB/s; peak of products of bytes {:.0f}, of int16 {:.0f}, of f32 {:.0f} "
        "Gop/s\n\n",
        device_label(), limits.read * kGiga, limits.bytes * kGiga, limits.pairs * kGiga,
        limits.floats * kGiga);
    fmt::print(
        "| weights | precision | tokens | us | GB/s | of a read loop | Gop/s | of the peak | time of one "
        "|\n");
    fmt::print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  } else if (format == "csv") {
    fmt::print(
        "weights,precision,tokens,seconds,bytes_per_second,read_loop_share,ops_per_second,peak_share,against_"
        "one\n");
  } else if (format == "jsonl") {
    fmt::print("{}\n", machine.dump());
  }
  std::fflush(stdout);
  const auto figures = kernels::measure_products(repetitions, filter, [&](const kernels::ProductFigure& f) {
    if (format == "md")
      fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.0f} % | {:.1f} | {:.0f} % | {:.2f}x |\n", f.weights,
                 kernels::to_string(f.precision), f.tokens, f.seconds * 1e6, f.bytes_a_second * kGiga,
                 100 * f.read_share, f.ops_a_second * kGiga, 100 * f.peak_share, f.against_one);
    else if (format == "csv")
      fmt::print("\"{}\",{},{},{:.9f},{:.0f},{:.4f},{:.0f},{:.4f},{:.3f}\n", f.weights,
                 kernels::to_string(f.precision), f.tokens, f.seconds, f.bytes_a_second, f.read_share,
                 f.ops_a_second, f.peak_share, f.against_one);
    else if (format == "jsonl")
      fmt::print("{}\n", json_of(f).dump());
    std::fflush(stdout);
  });
  if (figures.empty())
    throw UsageError(fmt::format("--kernels {}: no weights have that in their name", filter));
  if (format == "json") {
    Json all = {{"machine", machine}, {"products", Json::array()}};
    for (const auto& f : figures) all["products"].push_back(json_of(f));
    fmt::print("{}\n", all.dump(2));
  }
  return 0;
}

}  // namespace mlxcel::app
