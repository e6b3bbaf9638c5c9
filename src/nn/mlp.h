// Feed-forward parts. Values. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden].
#pragma once

#include <optional>
#include <string>

#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/phases.h"
#include "nn/weights.h"

namespace mlxcel {

struct GatedMlpNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// down(activation(gate(x)) * up(x)); with a clamp that in place of activation(gate) * up
class GatedMlp {
 public:
  GatedMlp(const Weights& w, int hidden, int width, Activation activation, Bias bias = Bias::as_stored,
           const GatedMlpNames& names = {}, const std::optional<ClampedGlu>& clamp = {});
  /// intermediate_size and hidden_act from the config.
  static GatedMlp from(const Config& config, const Weights& w, int hidden, Bias bias = Bias::as_stored);
  array operator()(const array& x, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  GatedLinear gate_up_;
  Linear both_, down_;  // both_: gate then up, with a clamp
  Activation activation_;
  std::optional<ClampedGlu> clamp_;
};

/// out(activation(in(x)))
class Mlp {
 public:
  Mlp(const Weights& w, const std::string& in, const std::string& out, int hidden, int width,
      Activation activation, Bias bias = Bias::as_stored);
  array operator()(const array& x, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  Linear in_, out_;
  Activation activation_;
};

}  // namespace mlxcel
