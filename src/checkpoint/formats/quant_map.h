// The quantisation a config.json declares: a default and entries per module. It settles what shapes leave
// open; where the two disagree the shapes win and a warning says so.
// Thread: any, immutable. Failure: bad_checkpoint naming the field.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "tensor/weight.h"

namespace mlxcel {

class QuantMap {
 public:
  /// Reads `quantization` (or MLX's copy of it under `quantization_config`).
  static QuantMap from(const Config& config);

  struct Entry {
    std::optional<QuantFormat> format;  // nothing: left dense
    bool explicitly = false;            // named by the map, not only by its default
  };
  /// What the map says of a module ("model.layers.0.mlp.up_proj"), whatever `model.` or `language_model.`
  /// prefixes either spelling has. Nothing where the config declares no quantisation.
  std::optional<Entry> find(std::string_view module) const;
  const std::optional<QuantFormat>& fallback() const { return fallback_; }
  bool empty() const { return !fallback_ && modules_.empty(); }

 private:
  std::optional<QuantFormat> fallback_;
  std::map<std::string, std::optional<QuantFormat>, std::less<>> modules_;    // as spelled
  std::map<std::string, std::optional<QuantFormat>, std::less<>> canonical_;  // prefixes removed
};

/// The spelling of a mode, or unknown.
std::optional<QuantMode> parse_quant_mode(std::string_view text);
/// What a mode means where nothing else is said.
QuantFormat default_format(QuantMode mode);
/// Whether MLX has kernels for the combination.
bool supported(const QuantFormat& format);
/// What is wrong with a combination that is not, and what would be right.
std::string format_rule(const QuantFormat& format);
std::string to_string(const QuantFormat& format);  // "affine4g64", "mxfp4"

}  // namespace mlxcel
