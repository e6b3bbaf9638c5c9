// Mamba 1 mixer: a gated stream through a short convolution and a scan whose steps, inputs and outputs each
// token chooses for every channel. Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens,
// hidden]. Reference: transformers MambaMixer, FalconMambaMixer, JambaMambaMixer; Gu & Dao 2023.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/config.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/phases.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct MambaOptions {
  /// RMS norms over the time steps, inputs (B) and outputs (C) that a token chooses.
  enum class Norms { none, weightless, weighted };  // weighted: dt_layernorm, b_layernorm, c_layernorm

  int hidden = 0;
  int inner = 0;
  int state = 16;  // entries per channel
  int taps = 4;    // 2 to 16
  int rank = 0;    // of the projection that gives the time steps
  Activation activation = Activation::silu;
  Bias bias = Bias::as_stored;  // of in_proj and out_proj
  Bias conv_bias = Bias::required;
  Norms norms = Norms::none;
  float eps = 1e-6f;

  /// A rank under `key`: a number, or "auto" (the default): hidden / 16, rounded up.
  static int rank_from(const Config& config, const char* key, int hidden);
};

/// Reads in_proj, conv1d, x_proj, dt_proj, A_log, D, out_proj under its scope; keeps two recurrent states.
class MambaMixer {
 public:
  MambaMixer(const Weights& w, const MambaOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  MambaOptions o_;
  Linear in_, choice_, dt_, out_;
  array conv_weight_;               // [inner, taps]
  std::optional<array> conv_bias_;  // [inner]
  array rate_, d_;                  // [inner, state], [inner]
  std::optional<RmsNorm> dt_norm_, b_norm_, c_norm_;
  int conv_slot_, ssm_slot_;
};

}  // namespace mlxcel
