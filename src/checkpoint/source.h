// Named weights. Three sources: the files of a checkpoint, synthetic values from a seed (tests), and a plan
// with shapes but no data (memory estimates, inspect). Rules turn one source into another, lazily.
// Owner: shared_ptr. Thread: header reads any thread; load() any thread, one at a time.
// Failure: bad_checkpoint with the file, the tensor, what was expected and what was found.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/low_rank.h"
#include "tensor/weight.h"

namespace mlxcel {

/// What a header says of a weight, known without reading data.
struct WeightInfo {
  Shape shape;                    // logical
  mx::Dtype dtype = mx::float32;  // dense type, or the type of the scales
  std::optional<QuantFormat> format;
  std::string stored_as;  // the file's own word: "Q4_1", "BF16", "affine4g64"
  size_t bytes = 0;       // all planes, as stored
};

class Source {
 public:
  virtual ~Source() = default;
  virtual std::vector<std::string> names() const = 0;  // sorted; planes of one weight are one name
  virtual std::optional<WeightInfo> find(const std::string& name) const = 0;
  /// not_found for an unknown name. Arrays are evaluated; they may view a mapped file.
  virtual Weight load(const std::string& name) = 0;
  /// What an adapter adds to a weight, from what it adds to the weights that the file holds.
  virtual std::optional<LowRank> low_rank(const std::string& name, const LowRankOf& of) const {
    const auto info = find(name);
    return info ? of(name, info->shape) : std::nullopt;
  }
};

}  // namespace mlxcel
