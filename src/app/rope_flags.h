// RoPE overrides (features.md 16): flags that rewrite the configuration before a model is built, so that
// every rotary layer sees them through the one reader. Thread: main. Failure: UsageError for values,
// unsupported where a model has no rotary positions.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"

namespace mlxcel::app {

struct RopeFlags {
  std::string scaling;  // none, linear, yarn
  std::optional<double> scale, freq_base, freq_scale;
  std::optional<int> yarn_orig_ctx;
  std::optional<double> yarn_ext_factor, yarn_attn_factor, yarn_beta_slow, yarn_beta_fast;

  bool any() const;
};

/// What can be known without a model.
void check(const RopeFlags& flags);
void override_rope(Checkpoint& checkpoint, const RopeFlags& flags);
/// After the model was built: unsupported where nothing has read the keys.
void require_rotary(const Checkpoint& checkpoint, const RopeFlags& flags);

}  // namespace mlxcel::app
