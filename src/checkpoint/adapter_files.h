// LoRA adapters as their tools write them: an MLX folder (adapter_config.json, adapters.safetensors), a
// PEFT folder (adapter_config.json, adapter_model.safetensors), or a GGUF file. Every tensor must be half of
// a pair; DoRA, retrained modules, biases and initialisations that change the base are refused by name.
// Owner: value; plain memory. Thread: any. Failure: bad_checkpoint or unsupported naming file and tensor.
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
  const char* format() const { return format_; }  // "PEFT", "MLX", "GGUF"
  int rank() const { return rank_; }              // the largest
  size_t pairs() const { return pairs_.size(); }
  /// Whether what is added to an embedding table is added to a head that shares it (MLX; PEFT where asked).
  bool heads_follow_tables() const { return heads_follow_tables_; }
  /// Follows from names, shapes and every value.
  uint64_t digest() const { return digest_; }

  /// What is added to the weight `name` of shape [out, in] or [experts, out, in], alpha / r included.
  /// Exporters' prefixes before the name ("model.", "language_model.", "transformer.") may be there on one
  /// side only. bad_checkpoint where the pair does not fit the shape.
  std::optional<LowRank> of(const std::string& name, const Shape& shape) const;
  /// Whether something is added to the weight of this name.
  bool touches(const std::string& name) const { return pairs_.contains(bare(name)); }
  /// What the files leave to the model they were made for.
  struct Base {
    int heads = 0, kv_heads = 0;  // GGUF keeps rows of rotated queries and keys in adjacent pairs
    bool turned_experts = false;  // banks of experts are published [experts, in, out]
  };
  /// Brings the pairs into the published form of such a model. Once, before of().
  void settle(const Base& base);
  /// The same for a bank of experts that was stacked from single ones, or cut out of gate_up_proj: its parts
  /// in the fused banks that PEFT's target_parameters name.
  std::optional<LowRank> of_bank(const std::string& name, const Shape& shape) const;
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
    enum class Form { published, query_pairs, key_pairs, parameter } form = Form::published;
  };
  std::filesystem::path path_;
  const char* format_ = "";
  int rank_ = 0;
  uint64_t digest_ = 0xcbf29ce484222325ULL;
  bool fan_in_fan_out_ = false;  // pairs of weights stored [in, out]
  bool heads_follow_tables_ = false;
  std::map<std::string, Pair> pairs_;  // by weight name without exporters' prefixes
  mutable std::set<std::string> used_;
  std::vector<Copy> copies_;

  /// Scales the pair, checks its values and keeps it. `where`: of messages.
  void put(const std::string& module, Pair pair, float scale, const std::string& where);

  friend class AdapterReader;
  friend class GgufAdapterReader;
};

}  // namespace mlxcel
