// Flags that rewrite the configuration before a model is built, so that its layers see them through the one
// reader: positions (features.md 16) and rounds of text diffusion (features.md 12). Thread: main.
// Failure: UsageError for values and for models that have no blocks, unsupported where a model has no rotary
// positions.
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

/// Of models that fill in blocks of tokens; absent: the model's own.
struct DiffusionFlags {
  std::optional<int> steps;         // most rounds of a block
  std::optional<double> threshold;  // tokens surer than this are taken at once
  std::string sampler;              // "entropy-bound", "confidence"
  std::optional<int> canvas;        // longest block

  bool any() const { return steps || threshold || !sampler.empty() || canvas; }
};

/// What can be known without a model.
void check(const RopeFlags& flags);
/// The overrides in words, for keys of caches; empty: none.
std::string words_of(const RopeFlags& flags);
void override_rope(Checkpoint& checkpoint, const RopeFlags& flags);
/// After the model was built: unsupported where nothing has read the keys.
void require_rotary(const Checkpoint& checkpoint, const RopeFlags& flags);

/// UsageError where the model writes one token after another, or cannot do what is asked of its blocks.
void override_diffusion(Checkpoint& checkpoint, const DiffusionFlags& flags);

}  // namespace mlxcel::app
