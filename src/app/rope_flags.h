// Flags that are checked against the model: positions (features.md 16), which rewrite the configuration
// before it is built, so that its layers see them through the one reader; rounds of text diffusion
// (features.md 12), which the engine follows. Thread: main. Failure: UsageError for values and for models
// that have no blocks, unsupported where a model has no rotary positions.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "engine/denoising.h"

namespace mlxcel::app {

struct RopeFlags {
  std::string scaling;  // none, linear, yarn
  std::optional<double> scale, freq_base, freq_scale;
  std::optional<int> yarn_orig_ctx;
  std::optional<double> yarn_ext_factor, yarn_attn_factor, yarn_beta_slow, yarn_beta_fast;

  bool any() const;
};

/// Of models that fill in blocks of tokens; absent: the model's own.
using DiffusionFlags = Denoising;

/// What can be known without a model.
void check(const RopeFlags& flags);
/// The overrides in words, for keys of caches; empty: none.
std::string words_of(const RopeFlags& flags);
void override_rope(Checkpoint& checkpoint, const RopeFlags& flags);
/// After the model was built: unsupported where nothing has read the keys.
void require_rotary(const Checkpoint& checkpoint, const RopeFlags& flags);

/// UsageError where the model writes one token after another, or cannot do what is asked of its blocks.
void require_blocks(const Checkpoint& checkpoint, const DiffusionFlags& flags);

}  // namespace mlxcel::app
