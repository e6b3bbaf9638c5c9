// Weights from a name: tests and goldens need no stored tensors. Every value follows from the tensor's
// published name, its shape and the value's index, so a Python tool and this file agree bit for bit.
// Owner: shared_ptr<Source>. Thread: any. Failure: not_found for a name outside the list.
//
// Value i (row-major, from 0) of the tensor called `name`, as the checkpoint publishes it (before rules):
//   key  = FNV-1a 64 over the bytes of `name` (offset 0xcbf29ce484222325, prime 0x100000001b3)
//   z    = key + (i + 1) * 0x9e3779b97f4a7c15                        (all arithmetic modulo 2^64)
//   z    = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
//   z    = (z ^ (z >> 27)) * 0x94d049bb133111eb
//   z    = z ^ (z >> 31)
//   u    = float32(z >> 40) * 2^-23 - 1                              in [-1, 1), exact in float32
// Then, with `last` the part of the name after its final dot (the whole name without one), the first rule
// that holds; products and sums are float32 and rounded one by one (no fused multiply-add):
//   1. last == "A_log"                                   0.5 + 0.5 * u
//   2. last == "dt_bias"                                 u - 1
//   3. last == "D"                                       1 + 0.5 * u
//   3a. last == "tid2eid" (experts of token ids)         floor(2 + 2 * u)
//   4. rank <= 1 and last ends with "bias" or "beta"     float32(0.2) * u
//   5. rank <= 1                                         1 + 0.25 * u            (norm weights, all kinds)
//   6. name contains "embed", "wte" or "wpe"             0.5 * u
//   7. otherwise                                         float32(sqrt(3.0 / last dimension)) * u, the
//                                                        square root and quotient in float64
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/source.h"
#include "nn/weights.h"

namespace mlxcel {

std::vector<float> synthetic_values(const std::string& name, const Shape& shape);

/// A dense float32 source over these tensors. Duplicates are an error.
std::shared_ptr<Source> synthetic_source(const std::vector<TensorShape>& tensors);

}  // namespace mlxcel
