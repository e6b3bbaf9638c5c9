// `bench --kernels`: what the packed products reach on this machine. Thread: main.
#pragma once

#include <string>

namespace mlxcel::app {

/// Prints figures of the products whose weights' name holds `filter`, as md, csv, json or jsonl; the exit
/// code.
int bench_kernels(int repetitions, const std::string& filter, const std::string& format);

}  // namespace mlxcel::app
