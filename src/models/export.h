// Writes a model as an MLX folder: any source in, another format out, one tensor at a time. The codes, scales
// and biases are those of MLX's own quantize; names and config.json are what mlx-lm reads.
// Owner: values. Thread: any one (it builds and evaluates MLX operations itself; no engine may do so
// meanwhile on the same arrays). Failure: invalid_request for options that fit nothing; internal for the
// disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/formats/quant_map.h"
#include "models/model.h"

namespace mlxcel {

struct ExportOverride {
  std::string pattern;  // glob over module names, with or without ".weight"
  QuantFormat format;
};

struct ExportOptions {
  QuantFormat format;
  std::string recipe;  // mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6; empty: none
  std::vector<ExportOverride> overrides;
  std::vector<std::string> skip;
  std::vector<FusedAdapter> adapters;  // baked in before anything else; they live as long as the plan
  std::optional<mx::Dtype> dtype;      // absent: the configuration's, else as stored
  bool dequantize = false;
  bool names_are_final = false;  // the source has the names to write: no rules of an architecture
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  std::map<std::string, std::string> files;  // further files to write: a GGUF's tokenizer
};

struct ExportTensor {
  std::string name;  // as it is written
  Shape shape;
  std::string stored_as;  // in the source
  std::optional<QuantFormat> format;
  mx::Dtype dtype = mx::float32;  // dense, or of the scales
  std::string why;                // an exception from the rule, in words
  std::uint64_t bytes = 0;
  std::string becomes() const;
};

struct ExportPlan {
  std::vector<ExportTensor> tensors;
  std::shared_ptr<Source> source;
  std::uint64_t bytes = 0;
  long long parameters = 0;
  double bits_per_weight = 0;
  std::vector<std::string> warnings;
};

ExportPlan plan_export(const Checkpoint& checkpoint, const ExportOptions& options);

/// Everything appears at `target` by rename at the end. `replace`: what is there goes.
void write_export(const Checkpoint& checkpoint, const ExportPlan& plan, const ExportOptions& options,
                  const std::filesystem::path& target, bool replace,
                  const std::function<void(size_t done, size_t total)>& progress);

}  // namespace mlxcel
