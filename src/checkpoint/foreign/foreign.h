// Weights that other quantisers stored, turned into planes or dense values of ours as they are loaded:
// AutoAWQ, GPTQ, compressed-tensors, blocks of fp8, gpt-oss's mxfp4, ModelOpt's NVFP4, BitNet's ternary
// bytes. Thread: any; loading is plain memory work. Failure: bad_checkpoint naming the tensor, what was
// expected and found; unsupported for variants that are known but not read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/source.h"

namespace mlxcel {

/// One weight as it will be, and how it comes about.
struct Converted {
  WeightInfo info;
  std::function<Weight()> load;  // its name is the caller's affair
};
using Conversions = std::map<std::string, Converted>;

/// What quantization_config says of foreign weights; names and types of tensors say the rest.
struct ForeignConfig {
  std::string method;  // "awq", "gptq", …; empty: none declared
  std::string where;
  int bits = 4;
  int group = 0;             // 0: by the shapes
  bool raised_zeros = true;  // GPTQ's first format keeps zero points one too low
  bool divided = true;       // BitNet's scale divides; that of its "autobitlinear" multiplies
  int block_rows = 128, block_columns = 128;

  /// unsupported for a method that is not read.
  static ForeignConfig from(const Config& config);
};

/// Takes the foreign tensors (and the scales of activations) out of `tensors`.
Conversions take_foreign(StoredTensors& tensors, const ForeignConfig& config,
                         std::vector<std::string>& warnings);

/// Both as one source; a name in both is an error.
std::shared_ptr<Source> with_conversions(std::shared_ptr<Source> source, Conversions conversions);

}  // namespace mlxcel
