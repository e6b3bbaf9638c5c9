// Mamba-2 mixer: one projection, a short causal convolution, the state-space scan, a gated norm per group.
// Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden].
// Reference: transformers Mamba2Mixer; Dao & Gu 2024.
#pragma once

#include <limits>
#include <vector>

#include "checkpoint/config.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/phases.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct Mamba2Options {
  int hidden = 0;
  int heads = 0;
  int head_dim = 0;     // heads * head_dim is the inner width
  int state = 0;        // N, entries of state per channel
  int groups = 1;       // heads share B and C by group
  int taps = 4;         // of the convolution
  float dt_min = 0.0f;  // limits on the time step
  float dt_max = std::numeric_limits<float>::infinity();
  float eps = 1e-5f;  // of the gated norm
  Activation activation = Activation::silu;
  Bias bias = Bias::as_stored;        // of in_proj and out_proj
  std::optional<Bias> out_bias = {};  // of out_proj, where it differs
  Bias conv_bias = Bias::required;
  float in_scale = 1.0f;                  // of the input
  std::vector<float> stream_scales = {};  // of what in_proj gives: gate, x, B, C, dt; none: all 1
  bool norm = true;                       // false: only gated
  bool norm_before_gate = false;

  /// The time step's limits under `key`: two numbers, low and high; absent: from 0 on.
  void read_limits(const Config& config, const char* key);
  /// That heads, head_dim, groups and the inner width fit together.
  void check(const Config& config, long long inner) const;
};

/// Reads in_proj, conv1d, dt_bias, A_log, D, norm, out_proj under its scope; keeps two recurrent states.
class Mamba2Mixer {
 public:
  Mamba2Mixer(const Weights& w, const Mamba2Options& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  Mamba2Options o_;
  Linear in_, out_;
  array conv_weight_;                   // [channels, taps]
  std::optional<array> conv_bias_;      // [channels]
  array dt_bias_, a_, d_;               // [heads]
  std::optional<array> norm_weight_;    // [inner]
  std::optional<array> stream_scales_;  // [outputs of in_proj]
  int conv_slot_, ssm_slot_;
};

/// min(max(log(1 + e^(x + bias)), low), high): x [tokens, heads], bias [heads]; a token's bits follow from
/// its values alone.
array time_step(const array& x, const array& bias, float low = 0.0f,
                float high = std::numeric_limits<float>::infinity());

}  // namespace mlxcel
