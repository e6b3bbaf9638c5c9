// LoRA adapters as their tools write them: an MLX folder (adapter_config.json, adapters.safetensors) or a
// PEFT folder (adapter_config.json, adapter_model.safetensors). Every tensor must be half of a pair; DoRA,
// retrained modules, biases and initialisations that change the base are refused by name. Owner: value; plain
// memory. Thread: any. Failure: bad_checkpoint or unsupported naming file and tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/low_rank.h"

namespace mlxcel {

class AdapterFiles {
 public:
  static constexpr int kMostRank = 4096;

  /// `folder`, or the safetensors file in it.
  static AdapterFiles read(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const char* format() const { return format_; }  // "PEFT", "MLX"
  int rank() const { return rank_; }              // the largest
  size_t pairs() const { return pairs_.size(); }
  /// Follows from names, shapes and every value.
  uint64_t digest() const { return digest_; }

  /// What is added to the weight `name` of shape [out, in] or [experts, out, in], alpha / r included.
  /// Exporters' prefixes before the name ("model.", "language_model.", "transformer.") may be there on one
  /// side only. bad_checkpoint where the pair does not fit the shape.
  std::optional<LowRank> of(const std::string& name, const Shape& shape) const;
  /// Pairs that of() was never asked for, by their names in the file.
  std::vector<std::string> unused() const;
  /// The base's own weights that PEFT stores beside a targeted head: they must be the model's.
  struct Copy {
    std::string stored;  // as the file spells it
    std::string weight;  // without exporters' prefixes
    array values;        // f32
  };
  const std::vector<Copy>& copies() const { return copies_; }
  /// A weight's name without exporters' prefixes.
  static std::string bare(std::string name);

 private:
  struct Pair {
    std::string stored;  // as the file spells the module
    LowRank factors;     // [out, in], or [experts, out, in]
  };
  std::filesystem::path path_;
  const char* format_ = "";
  int rank_ = 0;
  uint64_t digest_ = 0;
  bool fan_in_fan_out_ = false;        // pairs of weights stored [in, out]
  std::map<std::string, Pair> pairs_;  // by weight name without exporters' prefixes
  mutable std::set<std::string> used_;
  std::vector<Copy> copies_;

  friend class AdapterReader;
};

}  // namespace mlxcel
