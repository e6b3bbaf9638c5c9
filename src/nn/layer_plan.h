// Which layers see only a window of the past: read from layer_types, or from a family's older keys.
// Owner: value. Failure: bad_checkpoint for a list of the wrong length or an unknown entry.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/config.h"

namespace mlxcel {

class LayerPlan {
 public:
  /// `sliding[i]`: layer i sees `window` tokens.
  LayerPlan(std::vector<bool> sliding, int window) : sliding_(std::move(sliding)), window_(window) {}

  /// layer_types ("full_attention", "sliding_attention") where present, else `fallback(i)` for each layer.
  template <class Fallback>
  static LayerPlan from(const Config& config, int layers, int window, Fallback fallback) {
    auto listed = listed_types(config, layers);
    if (listed.empty())
      for (int i = 0; i < layers; ++i) listed.push_back(fallback(i));
    return LayerPlan(std::move(listed), window).checked(config);
  }

  bool sliding(int layer) const { return sliding_[static_cast<size_t>(layer)]; }
  int window(int layer) const { return sliding(layer) ? window_ : 0; }
  const char* type(int layer) const { return sliding(layer) ? "sliding_attention" : "full_attention"; }

 private:
  static std::vector<bool> listed_types(const Config& config, int layers);
  LayerPlan checked(const Config& config) const;

  std::vector<bool> sliding_;
  int window_;
};

/// Each layer's kind as the config lists them under `key`, all of them known; empty where it has no such
/// list.
std::vector<std::string> listed_kinds(const Config& config, const char* key, int layers,
                                      const std::vector<std::string>& known);

/// Which layers have full attention among linear ones: layer_types ("linear_attention", "full_attention"),
/// else every full_attention_interval-th.
std::vector<bool> full_attention_layers(const Config& config, int layers);

/// Which layers are rotated: the list no_rope_layers (1: rotated), else all but every
/// no_rope_layer_interval-th.
std::vector<bool> rotated_layers(const Config& config, int layers, int interval);

}  // namespace mlxcel
